"""The grammar of SELECT against SQLite's own parser."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterator

import pytest

from tests.controllers.lr1.conftest import Bundled
from tests.controllers.lr1.recognizer import Recognizer

LEXEME = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\w+|<<|>>|<=|>=|<>|!=|==|\|\||\S")
#: lexemes that a damaged query may have instead
OTHERS = """
select from where group by having order limit offset as with values union all join left on using or and not
is in like between null case when then else end exists distinct ( ) , . * + - = < || ; 1 'x' a t 1a ' ? x''
"""


@pytest.fixture(scope="module")
def grammar(bundled: Bundled) -> Recognizer:
    return bundled("sql.y")


@pytest.fixture(scope="module")
def tables() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (a, b, c)")
    connection.execute("create table u (a, d, e)")
    yield connection
    connection.close()


def is_query(tables: sqlite3.Connection, text: str) -> bool:
    """Does SQLite find no error of syntax? What names mean is another matter."""
    try:
        tables.execute("explain " + text)
    except sqlite3.OperationalError as error:
        return not re.search(r"syntax error|incomplete input|unrecognized token", str(error))
    except (sqlite3.ProgrammingError, sqlite3.Warning) as error:
        return "one statement" not in str(error)
    return True


class Writer:
    """Random queries: templates whose marks are replaced by others, fewer and fewer."""

    LEAVES = (
        *("1", "2.5", "0x1F", ".5e-3", "'it''s'", "x'0aFF'", "null", "a", "t.b", '"c"', "[d]", "?", ":p"),
        "count(*)",
    )
    VALUES = (
        *(f"V {operator} V" for operator in ("+", "-", "*", "/", "%", "||", "&", "|", "<<", ">>")),
        *("(C)", "- V", "~V", "V COLLATE nocase", "coalesce(V, V)", "sum(DISTINCT V)", "CAST(V AS text)"),
        *("CASE WHEN C THEN V ELSE V END", "case V when V then V end", "(Q)", "EXISTS (Q)", "L", "L"),
    )
    CONDITIONS = (
        *(f"V {comparison} V" for comparison in ("=", "==", "<>", "!=", "<", "<=", ">", ">=")),
        *("V IS V", "V IS NOT V", "V LIKE V", "V NOT LIKE V ESCAPE 'x'", "V BETWEEN V AND V", "V IN (V, V)"),
        *("V NOT IN (Q)", "V ISNULL", "V", "C AND C", "C or C", "NOT C", "(C)"),
    )
    RELATIONS = ("t", "u", "t AS x", "main.t", '"u" y', "(Q) AS z", "(S)")
    SOURCES = (
        *("T", "T", "S, T", "S NATURAL JOIN T", "S join T using (a)"),
        *(
            f"S {kind} T ON C"
            for kind in ("JOIN", "inner join", "LEFT JOIN", "left outer join", "CROSS JOIN")
        ),
    )
    COLUMNS = ("*", "t.*", "V", "V AS n", "L m", "V, V")
    CORES = (
        "SELECT K",
        "select distinct K FROM S",
        "select K from S where C",
        "Select K FROM S group by V, V HAVING C",
    )
    QUERIES = ("R", "R", "R UNION R", "R union all R", "R INTERSECT R", "R except R")
    ENDS = ("", "", " ORDER BY L desc, 1", " LIMIT 10", " order by 1 LIMIT V OFFSET 2")
    TEXTS = (
        "Q",
        "Q",
        "WITH w AS (Q) Q",
        "with recursive w(a, b) AS (Q), v as (Q) Q",
        "Q -- end\n",
        "Q ; /* end */",
    )

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def text(self) -> str:
        self.left = self.rng.randint(0, 25)
        return self.fill(self.rng.choice(self.TEXTS))

    def fill(self, template: str) -> str:
        return re.sub(r"\b[VCSTKRQL]\b", lambda mark: self.some(mark[0]), template)

    def some(self, mark: str) -> str:
        self.left -= 1
        end = self.left < 0
        match mark:
            case "Q":
                return self.fill(
                    self.rng.choice(self.QUERIES[:1] if end else self.QUERIES) + self.rng.choice(self.ENDS)
                )
            case "R":
                return self.fill(self.rng.choice(self.CORES[:1] if end else self.CORES))
            case "K":
                return self.fill(self.rng.choice(self.COLUMNS))
            case "S":
                return self.fill(self.rng.choice(self.SOURCES[:1] if end else self.SOURCES))
            case "T":
                return self.fill(self.rng.choice(self.RELATIONS[:5] if end else self.RELATIONS))
            case "C":
                return self.fill(self.rng.choice(("V",) if end else self.CONDITIONS))
            case "V":
                return self.fill("L" if end else self.rng.choice(self.VALUES))
            case _:
                return self.rng.choice(self.LEAVES)


def test_random_queries(grammar: Recognizer, tables: sqlite3.Connection) -> None:
    writer = Writer(random.Random(8))
    for _ in range(600):
        text = writer.text()
        assert is_query(tables, text), text
        assert grammar.accepts(text), text


def test_queries_that_sqlite_refuses_are_refused(grammar: Recognizer, tables: sqlite3.Connection) -> None:
    rng = random.Random(9)
    writer, refused, accepted = Writer(rng), 0, 0
    for _ in range(3000):
        text = writer.text()
        if len(text) > 400:
            continue
        spans = [m.span() for m in LEXEME.finditer(text)]
        begin, end = rng.choice(spans)
        other = text[slice(*rng.choice(spans))] if rng.random() < 0.5 else rng.choice(OTHERS.split())
        text = text[:begin] + rng.choice(["", f" {other} ", other]) + text[rng.choice([begin, end]) :]
        if grammar.accepts(text):
            accepted += 1
            assert is_query(tables, text), text
        else:
            refused += 1
    assert min(refused, accepted) > 500


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "select 1 where 1 order by 1",
        "VALUES (1, 2), (3, 4)",
        "select a from (t) where a in ()",
        "select`a`from[t]",
    ],
)
def test_queries(grammar: Recognizer, tables: sqlite3.Connection, text: str) -> None:
    assert is_query(tables, text) and grammar.accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "select",
        "select 1a",
        "select 'a",
        "select 1;;",
        "delete from t",
        "select 1 from",
        "\u017felect 1",
        "select 1 li\u212ae 2",
    ],
)
def test_invalid_queries(grammar: Recognizer, tables: sqlite3.Connection, text: str) -> None:
    assert not is_query(tables, text) or text in ("", "delete from t", "select 1;;")
    assert not grammar.accepts(text)
