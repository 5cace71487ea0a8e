"""Walks along random texts of a controller, and compares every mask with an oracle and with other engines.

Brute force decides: the oracle is asked about each token of the vocabulary.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.exactness.languages import Language, OraclesDiffer
from lab.oracles.grammars.walk import Controller, State
from lab.runners.host import Guest, Vocab

_STEPS = 10
#: in the message where no token of the vocabulary is allowed and the text may not end
_NO_TOKEN = "allows no token here"
_MAX_DRAWN = 60
#: of a mask, so many tokens about which the oracle does not know are followed to an end
_FOLLOWED = 2
#: steps of the search for an end
_MAX_FOLLOWED = 150


class Peer(Protocol):
    """Another engine, which follows one text."""

    name: str

    def begin(self, source: str) -> bool:
        """Starts a text; returns False if the engine refuses the source."""

    def mask(self) -> set[int] | None:
        """Returns the allowed tokens, with the end; None if the engine fails."""

    def accept(self, token: int) -> None:
        """Appends a token that its mask allows."""


@dataclass
class Case:
    """A random grammar, pattern, schema or text. `grammar` is it as a tree, if it is one."""

    source: str
    vocab: Vocab
    language: Language
    #: engines, each with the source in its syntax
    peers: Sequence[tuple[Peer, str]] = ()
    grammar: Any = None
    #: a text ends with the first token after which it is complete
    stops: bool = False
    #: returns whether a message may refuse the source, whatever the oracle says
    may_refuse: Callable[[str], bool] = lambda _: False
    #: the vocabulary lacks characters of the language, so that a text may come to a dead end
    may_lack_tokens: bool = False
    #: draw another case if this one is refused
    redraw: bool = False
    #: the engine
    kind: str = ""


@dataclass(frozen=True)
class Difference:
    """The peer is wrong about a token, or about the end if it is empty. `wide`: the peer allows it."""

    case: Case
    before: bytes
    last: bytes
    token: bytes
    wide: bool


@dataclass(frozen=True)
class Defect:
    """A known defect of a peer."""

    peer: str
    name: str
    reason: str
    applies: Callable[[Difference], bool]


@dataclass(frozen=True)
class Unusable:
    """A known defect that spares a peer some cases altogether."""

    peer: str
    name: str
    reason: str
    applies: Callable[[Case], bool]


@dataclass
class Result:
    """The findings of a walk; `flaws` are failures."""

    masks: int = 0
    refused: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    flaws: list[str] = field(default_factory=list)


class Walk:
    """A walk along one text."""

    def __init__(
        self, case: Case, program: Program, rng: random.Random, known: Sequence[Defect | Unusable]
    ) -> None:
        self._case, self._rng, self._known, self.result = case, rng, known, Result()
        self._made = Controller(program, case.vocab, case.source)
        self._eos, self._text, self._last = case.vocab.eos[0], b"", b""
        self._peers: list[Peer] = []

    def run(self) -> Result:
        """Walks to the end of a text, or for some steps."""
        try:
            guest = self._made.start()
        except ControllerFailed as error:
            self._refused(error.message)
            return self.result
        try:
            self._begin_peers()
            self._follow(guest)
        except ControllerFailed as error:
            self._failed(error.message)
        except OraclesDiffer as error:
            self._flaw(str(error))
        finally:
            guest.instance.close()
        return self.result

    def _flaw(self, what: str) -> None:
        self.result.flaws.append(f"{what}\ntext so far: {self._text!r}")

    def _lacks_tokens(self, message: str) -> bool:
        """Returns whether only characters that the vocabulary lacks continue the text."""
        return self._case.may_lack_tokens and _NO_TOKEN in message and not self._any_expected()

    def _any_expected(self) -> bool:
        return any(self._expected(token) for token in (*self._case.vocab.text, self._eos))

    def _failed(self, message: str) -> None:
        if not self._lacks_tokens(message):
            self._flaw(f"the controller fails: {message}")

    def _refused(self, message: str) -> None:
        self.result.refused = True
        if self._case.may_refuse(message) or self._lacks_tokens(message):
            return
        alive = self._case.language.alive(b"")
        if alive is None and not self._any_expected():
            self.result.counts["refusals that the oracle leaves open"] += 1
        elif alive is not False:
            self._flaw(f"the controller refuses a language that has texts: {message}")

    def _begin_peers(self) -> None:
        for peer, source in self._case.peers:
            spared = [k for k in self._known if isinstance(k, Unusable) and k.peer == peer.name]
            if reason := next((k.name for k in spared if k.applies(self._case)), None):
                self.result.counts[f"{peer.name}: {reason}"] += 1
            elif peer.begin(source):
                self._peers.append(peer)
            else:
                self.result.counts[f"{peer.name}: refuses"] += 1

    def _follow(self, guest: Guest) -> None:
        state = self._made.state(guest, [])
        for _ in range(_STEPS):
            self.result.masks += 1
            self._compare(guest, state)
            masks = self._compare_peers(state)
            if state.over or not state.tokens or self.result.flaws:
                return
            token = self._rng.choice(state.tokens)
            shared = sorted(set(state.tokens).intersection(*masks))
            if shared and self._rng.random() < 0.8:
                token = self._rng.choice(shared)
            self._peers = [peer for peer, mask in zip(self._peers, masks, strict=True) if token in mask]
            for peer in self._peers:
                peer.accept(token)
            self._last = self._made.bytes_of(token)
            self._text += self._last
            state = self._made.state(guest, [token])

    def _complete(self) -> bool | None:
        return bool(self._text or not self._case.stops) and self._case.language.complete(self._text)

    def _expected(self, token: int) -> bool | None:
        """Returns whether the oracle allows a token, or the end."""
        if token == self._eos:
            return self._complete()
        if self._case.stops and self._complete():
            return False
        return self._case.language.alive(self._text + self._made.bytes_of(token))

    def _compare(self, guest: Guest, state: State) -> None:
        allowed = {*state.tokens, self._eos} if state.end else set(state.tokens)
        if not allowed:
            self._flaw("an empty row where the text is not complete")
        unknown = []
        for token in (*self._case.vocab.text, self._eos):
            expected = self._expected(token)
            if expected is None:
                self.result.counts["tokens that the oracle leaves open"] += 1
                if token in allowed and token != self._eos:
                    unknown.append(token)
            elif expected != (token in allowed):
                sides = ("forbids", "allows")
                self._flaw(
                    f"token {self._name(token)}: our mask {sides[token in allowed]} it, "
                    f"the oracle {sides[expected]} it"
                )
        for token in self._rng.sample(unknown, min(len(unknown), _FOLLOWED)):
            self._check_end(guest, token)

    def _check_end(self, guest: Guest, token: int) -> None:
        """Follows the masks after a token to a complete text, about which the oracle knows."""
        end = self._ending(guest, token)
        name = "open tokens without an end nearby" if end is None else "open tokens with a valid end"
        self.result.counts[name] += 1
        if end is not None and self._case.language.complete(end) is False:
            self._flaw(f"token {self._name(token)} is allowed and leads to a text that is not valid: {end!r}")

    def _ending(self, guest: Guest, token: int) -> bytes | None:
        children = [guest.fork(2)]
        queue = [(children[0], self._text + self._made.bytes_of(token), token)]
        try:
            for parent, text, last in queue:
                state = self._made.state(parent, [last])
                if state.end:
                    return text
                if not state.tokens:
                    self._flaw(f"an empty row where the text is not complete: {text!r}")
                    return None
                for next_ in self._rng.sample(state.tokens, min(len(state.tokens), 12)):
                    if len(queue) < _MAX_FOLLOWED:
                        children.append(parent.fork(len(queue) + 2))
                        queue.append((children[-1], text + self._made.bytes_of(next_), next_))
            return None
        except ControllerFailed as error:
            if not (self._case.may_lack_tokens and _NO_TOKEN in error.message):
                raise
            return None
        finally:
            for child in children:
                child.instance.close()

    def _compare_peers(self, state: State) -> list[set[int]]:
        """Returns the masks of the peers; a peer that fails is left out from here on."""
        ours = {*state.tokens, self._eos} if state.end else set(state.tokens)
        masks: list[set[int]] = []
        for peer in list(self._peers):
            mask = peer.mask()
            if mask is None:
                self._peers.remove(peer)
                self.result.counts[f"{peer.name}: fails"] += 1
                continue
            masks.append(mask)
            self.result.counts[f"{peer.name}: masks"] += 1
            self.result.counts[f"{peer.name}: equal masks"] += mask == ours
            for token in sorted(mask ^ ours):
                self._judge(peer, token, wide=token in mask)
        return masks

    def _judge(self, peer: Peer, token: int, *, wide: bool) -> None:
        expected = self._expected(token)
        if expected is None:
            self.result.counts[f"{peer.name}: undecided"] += 1
            return
        if expected == wide:
            return  # our mask is wrong, which _compare has reported
        text = b"" if token == self._eos else self._made.bytes_of(token)
        difference = Difference(self._case, self._text, self._last, text, wide)
        name = next(self._names(peer, difference), None)
        self.result.counts[f"{peer.name}: {name or 'unknown defect'}"] += 1
        if name is None:
            sides = ("forbids", "allows")
            self._flaw(
                f"token {self._name(token)}: {peer.name} {sides[wide]} it, our mask and the oracle "
                f"{sides[not wide].removesuffix('s')} it; no known defect of the peer explains this"
            )

    def _names(self, peer: Peer, difference: Difference) -> Iterator[str]:
        for known in self._known:
            if isinstance(known, Defect) and known.peer == peer.name and known.applies(difference):
                yield known.name

    def _name(self, token: int) -> str:
        return "<end>" if token == self._eos else repr(self._made.bytes_of(token))


def check(
    draw: Callable[[random.Random], Case],
    kind: str,
    program: Program,
    rng: random.Random,
    known: Sequence[Defect | Unusable],
) -> tuple[Case, Result]:
    """Draws a case and walks through it. Draws again if the engine may refuse it and does."""
    for _ in range(_MAX_DRAWN):
        case = draw(rng)
        case.kind = kind
        result = Walk(case, program, rng, known).run()
        if not (case.redraw and result.refused and not result.flaws):
            break
    return case, result
