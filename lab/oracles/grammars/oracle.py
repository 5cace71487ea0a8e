"""A brute-force oracle: an Earley recognizer over bytes, too simple to share errors with the engine.

Everything becomes plain rules over single bytes, terminals too: a rule for each derivative of a regular
expression. Rules and alternatives from which no text comes are dropped, so a set of items that is not empty
means that some text goes on so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field

from lab.oracles.grammars.expressions import (
    NONE,
    Call,
    Choice,
    Expr,
    Grammar,
    Regex,
    Sequence,
    Terminal,
    cat,
    characters,
    derive,
    nullable,
    star,
)

#: symbols are bytes or other terminals (int), or names of rules (anything else)
_Symbol = Hashable
Rules = dict[Hashable, list[tuple[_Symbol, ...]]]
#: name of a rule, its alternative, the place in it, and the column where it began
Item = tuple[Hashable, tuple[_Symbol, ...], int, int]
Column = set[Item]


@dataclass
class Plain:
    """Rules over bytes. `alphabet`: the characters that texts are made of."""

    grammar: Grammar
    alphabet: str
    rules: Rules = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, expr in self.grammar.items():
            self.rules[name] = [(self.expr(expr),)]
        self._drop_unproductive()
        self._rename()

    def _named(self, name: Hashable, make: Callable[[], Iterable[tuple[_Symbol, ...]]]) -> Hashable:
        if name not in self.rules:
            self.rules[name] = []
            self.rules[name] = list(make())
        return name

    def expr(self, expr: Expr) -> _Symbol:
        if isinstance(expr, Call):
            return expr.name
        if isinstance(expr, Terminal):
            return self.terminal(expr)
        if isinstance(expr, Sequence):
            return self._named(expr, lambda: [tuple(self.expr(part) for part in expr.parts)])
        if isinstance(expr, Choice):
            return self._named(expr, lambda: [(self.expr(part),) for part in expr.parts])
        one = self.expr(expr.part)
        if expr.most is None:
            more = self._named(("more", expr.part), lambda: [(), (("more", expr.part), one)])
            return self._named(expr, lambda: [(one,) * expr.least + (more,)])
        times = range(expr.least, expr.most + 1)
        return self._named(expr, lambda: [(one,) * count for count in times])

    def terminal(self, terminal: Terminal) -> _Symbol:
        if terminal.kind == "parts":
            of = terminal.text
            pieces = {of[i:j] for i in range(len(of) + 1) for j in range(i, len(of) + 1)}
            return self._named(terminal, lambda: [tuple(piece.encode()) for piece in sorted(pieces)])
        if terminal.kind == "without":
            any_text = star(characters(self.alphabet))
            seen = cat(any_text, terminal.regex)
            return self._named(terminal, lambda: [(self._without(seen, first=True),)])
        early = terminal.kind == "early"
        return self._named(terminal, lambda: [(self._regex(terminal.regex, early, first=early),)])

    def _regex(self, regex: Regex, early: bool, first: bool) -> _Symbol:
        """Returns a symbol for the regex. With `first`, nothing has been read: excludes the empty text."""

        def make() -> Iterable[tuple[_Symbol, ...]]:
            if nullable(regex) and not first:
                yield ()
                if early:
                    return
            for c in self.alphabet:
                rest = derive(regex, c)
                if rest != NONE:
                    yield (*c.encode(), self._regex(rest, early, first=False))

        return self._named(("regex", regex, early, first), make)

    def _without(self, seen: Regex, first: bool) -> _Symbol:
        """Returns a symbol for the text that may follow if `seen` is the rest of an unwanted part."""

        def make() -> Iterable[tuple[_Symbol, ...]]:
            if nullable(seen):
                return
            if not first:
                yield ()
            for c in self.alphabet:
                yield (*c.encode(), self._without(derive(seen, c), first=False))

        return self._named(("without", seen, first), make)

    def _drop_unproductive(self) -> None:
        good: set[Hashable] = set()
        before = -1
        while before != len(good):
            before = len(good)
            for name, bodies in self.rules.items():
                if any(all(isinstance(s, int) or s in good for s in body) for body in bodies):
                    good.add(name)
        self.rules = {
            name: [body for body in bodies if all(isinstance(s, int) or s in good for s in body)]
            for name, bodies in self.rules.items()
        }

    def _rename(self) -> None:
        """Gives rules that are not of the grammar short names, since names are hashed often."""
        names = {name: name if name in self.grammar else str(i) for i, name in enumerate(self.rules)}
        self.rules = {
            names[name]: [tuple(s if isinstance(s, int) else names[s] for s in body) for body in bodies]
            for name, bodies in self.rules.items()
        }


def close(rules: Rules, columns: list[Column] | tuple[Column, ...], begun: Iterable[Item]) -> Column:
    """Returns the column after `columns` that begins with these items."""
    at, column = len(columns), set(begun)
    todo = list(column)
    done: set[tuple[Hashable, int]] = set()
    waiting: dict[Hashable, list[Item]] = {}

    def put(item: Item) -> None:
        if item not in column:
            column.add(item)
            todo.append(item)

    while todo:
        name, body, dot, origin = item = todo.pop()
        if dot == len(body):
            if (name, origin) in done:
                continue
            done.add((name, origin))
            before = waiting.get(name, []) if origin == at else _waiting(columns[origin], name)
            for n, b, d, o in list(before):
                put((n, b, d + 1, o))
        elif not isinstance(body[dot], int):
            wanted = body[dot]
            waiting.setdefault(wanted, []).append(item)
            for alternative in rules[wanted]:
                put((wanted, alternative, 0, at))
            if (wanted, at) in done:
                put((name, body, dot + 1, origin))
    return column


def _waiting(column: Column, name: Hashable) -> list[Item]:
    return [item for item in column if item[2] < len(item[1]) and item[1][item[2]] == name]


def first_column(rules: Rules, start: str) -> Column:
    """Returns the column before any text; it is empty if there is no text."""
    return close(rules, [], {("", (start,), 0, 0)} if rules[start] else set())


def after(column: Column, symbols: Collection[Hashable]) -> set[Item]:
    """Returns the items of a column behind one of these symbols, which are numbers."""
    return {(n, b, d + 1, o) for n, b, d, o in column if d < len(b) and b[d] in symbols}


def is_complete(column: Column) -> bool:
    return any(name == "" and dot == 1 for name, _, dot, _ in column)


class Oracle:
    """Feeds bytes; `columns` is a stack, so that tokens can be tried."""

    def __init__(self, grammar: Grammar, start: str, alphabet: str) -> None:
        self._rules = Plain(grammar, alphabet).rules
        self.columns: list[Column] = [first_column(self._rules, start)]

    @property
    def has_text(self) -> bool:
        return bool(self.columns[0])

    @property
    def complete(self) -> bool:
        return is_complete(self.columns[-1])

    def push(self, data: bytes) -> bool:
        """Pushes nothing if no text continues with the byte."""
        height = len(self.columns)
        for byte in data:
            step = after(self.columns[-1], (byte,))
            if not step:
                del self.columns[height:]
                return False
            self.columns.append(close(self._rules, self.columns, step))
        return True

    def pop(self, count: int) -> None:
        del self.columns[len(self.columns) - count :]

    def allowed(self, tokens: Iterable[bytes]) -> list[int]:
        found = []
        for number, token in enumerate(tokens):
            if token and self.push(token):
                self.pop(len(token))
                found.append(number)
        return found
