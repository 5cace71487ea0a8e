"""Grammars of which a part is read as by a lexer and a part anywhere."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.controllers.sdk.cfg.engine import Engine, Refused, regex
from tests.controllers.sdk.cfg.lexed import WORDS, Grammar, grammars
from tests.thorough import cases


@settings(
    max_examples=cases(50, 150), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(grammar=grammars(), forgetful=st.booleans())
def test_random_grammars(engine: Engine, grammar: Grammar, forgetful: bool) -> None:
    """Against all short texts, by the definition; also when everything is forgotten after each byte.

    Where something is ignored the engine takes it for granted that a lexeme which it can follow leads to
    an end.
    """
    expected = {word for word in WORDS if grammar.accepts(word)}
    begun = {word[:size] for word in expected for size in range(len(word) + 1)}
    engine.limits(compact_always=forgetful)
    ignore = regex(grammar.ignored) if grammar.ignored else None
    try:
        engine.make(*grammar.rules, ignore=ignore, longest=True, anywhere=grammar.anywhere)
    except Refused as refusal:
        assert str(refusal) == "the grammar matches no text" and not expected
        return
    for word in WORDS:
        last = engine.run(word)[-1]
        assert (last == 3) == (word in expected), word
        assert last or word not in begun, word
        if word and last and len(word) <= 2 and not forgetful and grammar.ignored is None:
            assert engine.can_end(engine.state(word)) is not False, word
    assert engine.failure() is None
