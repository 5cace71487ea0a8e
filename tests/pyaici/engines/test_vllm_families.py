"""Results and events that `VllmEngine` builds from outputs. tests/pyaici/engines/vllm uses the real vLLM."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pyaici.engines.engine import (
    Finished,
    FinishReason,
    Forked,
    Log,
    Origin,
    PromptCached,
    Request,
    Started,
    TokensAppended,
    VariablesChanged,
)
from pyaici.engines.vllm.engine import Families
from pyaici.engines.vllm.frontend import Events, events_of, keep_all, variables_to_wire
from pyaici.tokens import Vocabulary


@pytest.fixture
def families() -> Families:
    vocabulary = Vocabulary([b"", *(bytes([byte]) for byte in range(1, 128))], {0: "<end>"}, eos=(0,))
    families = Families(vocabulary, None)
    families.add_family("r", 7, Request("ab", controller="m", logprobs=True), [97, 98], events=True)
    return families


def output(index: int, tokens: str = "", *events: Any, finish: str | None = None, **more: Any) -> Any:
    """Returns the used part of vLLM's RequestOutput. Token n has the log-probability -n."""
    ids = [ord(c) for c in tokens]
    choice = SimpleNamespace(
        index=index,
        token_ids=ids,
        logprobs=[{token: SimpleNamespace(logprob=-float(token))} for token in ids],
        finish_reason=finish,
        stop_reason=more.pop("stop_reason", None),
    )
    return SimpleNamespace(
        request_id="r",
        outputs=[choice],
        kv_transfer_params={"aici": list(events)} if events else None,
        finished=more.pop("finished", False),
        num_cached_tokens=more.pop("cached", None),
    )


def ids(text: str) -> list[int]:
    return [ord(c) for c in text]


def test_a_child_starts_with_the_text_of_its_parent(families: Families) -> None:
    families.apply_output(output(0, "cd", ["sampled", ids("c")], ["forced", ids("d")]))
    families.apply_output(output(0, "", ["forked", [2]]))
    families.apply_output(output(2, "cd"))  # vLLM sends the inherited text to clients that do not read events
    families.apply_output(output(2, "e", ["sampled", ids("e")], finish="stop", stop_reason="controller"))
    families.apply_output(output(0, "f", ["back", 1], ["sampled", ids("f")], finish="length", finished=True))
    parent, child = families.results(7)
    assert (parent.text, child.text) == ("cf", "cde")
    assert child.parent == parent.seq and (parent.finish_reason, child.finish_reason) == (
        FinishReason.LENGTH,
        FinishReason.STOP,
    )
    assert child.origins[2:] == [Origin.SAMPLED, Origin.FORCED, Origin.SAMPLED]
    assert child.logprobs[2] == -99 and child.logprobs[3] != child.logprobs[3] and child.logprobs[4] == -101
    assert [type(event) for event in families.recorder.drain()][:4] == [
        Started,
        TokensAppended,
        TokensAppended,
        Forked,
    ]


def test_output_of_a_child_may_come_before_the_fork_event(families: Families) -> None:
    """vLLM determines the order of outputs within a step."""
    families.apply_output(output(1, "", ["log", "here"]))
    families.apply_output(output(0, "", ["forked", [1]]))
    forked, log = families.recorder.drain()[1:]
    assert isinstance(forked, Forked) and isinstance(log, Log)
    assert forked.children == [log.seq] and log.text == "here"


def test_forks_share_variables(families: Families) -> None:
    wire = json.loads(json.dumps(variables_to_wire({b"\xff": b"\0\xfe", b"a": b"1"})))
    families.apply_output(output(0, "", ["forked", [1]], ["variables", wire]))
    families.apply_output(output(0, finish="stop", stop_reason="controller"))
    families.apply_output(
        output(1, "", ["variables", variables_to_wire({b"a": b"2"})], finish="stop", finished=True)
    )
    assert [result.variables for result in families.results(7)] == [{"\\xff": b"\0\xfe", "a": b"2"}] * 2
    changes = [event for event in families.recorder.drain() if isinstance(event, VariablesChanged)]
    assert [change.values for change in changes] == [{"\\xff": b"\0\xfe", "a": b"1"}, {"a": b"2"}]


def test_forks_for_which_vllm_has_no_request_fail_with_their_parent(families: Families) -> None:
    families.apply_output(output(0, "c", ["sampled", [99]], ["forked", [1]]))
    families.apply_output(output(0, finish="error", stop_reason="why", finished=True))
    parent, child = families.results(7)
    assert (child.parent, child.finish_reason, str(child.error)) == (parent.seq, FinishReason.ERROR, "why")
    assert sum(isinstance(event, Finished) for event in families.recorder.drain()) == 2


def test_unused_choices_produce_no_results(families: Families) -> None:
    families.apply_output(output(1, finish="stop", stop_reason="unused"))
    families.apply_output(output(0, finish="error", stop_reason="why", finished=True))
    (result,) = families.results(7)
    assert result.finish_reason is FinishReason.ERROR and str(result.error) == "why"
    assert sum(isinstance(event, Finished) for event in families.recorder.drain()) == 1
    assert not families.has_unfinished


def test_events_survive_when_outputs_are_merged() -> None:
    """A slow client gets one output for several steps."""

    class Output:
        def __init__(self, *events: Any) -> None:
            self.kv_transfer_params: dict[str, Any] | None = {"aici": list(events)} if events else None

        def add(self, next_output: Output, aggregate: bool) -> None:
            self.kv_transfer_params = next_output.kv_transfer_params

    keep_all(Output)
    first, second = Output(["back", 1]), Output(["log", "x"])
    first.add(second, aggregate=True)
    first.add(Output(), aggregate=True)
    assert events_of(first) == [["back", 1], ["log", "x"]]
    empty = Output()
    empty.add(Output(), aggregate=True)
    assert events_of(empty) == [] and empty.kv_transfer_params is None


def test_empty_events_are_left_out() -> None:
    events = Events()
    events.tokens("sampled", [])
    events.add("back", 0)
    events.add("log", "")
    assert events.take_events() == []
    events.add("suspended")
    events.tokens("forced", [3])
    assert events.take_events() == [["suspended"], ["forced", [3]]] and events.take_events() == []


def test_cached_tokens_of_the_prompt_are_reported_once(families: Families) -> None:
    families.recorder.drain()
    for _ in range(2):
        families.apply_output(output(0, "c", ["sampled", [99]], cached=2))
    found = [event for event in families.recorder.drain() if isinstance(event, PromptCached)]
    assert [(event.request, event.count) for event in found] == [(7, 2)]
