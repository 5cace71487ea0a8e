"""Runs an AICI controller whose work is counted in fuel, which is the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence

from aicirt.contract.abi import CAP_TOKENIZER, STOP
from aicirt.contract.errors import AiciError
from aicirt.wasm import GuestExit, Program
from lab.contestants import Contestant, Refused
from lab.runners.fuel import MeteredGuest, used
from lab.runners.host import EVERYTHING, Mid, Vocab

#: calls of `aici_warm` between two looks at the fuel, and fuel for a template: about the builder's budget
_WARM_CALLS, _WARM_FUEL = 20, 3_000_000_000


class _Guest(MeteredGuest):
    """Keeps a mask as bytes: listing its tokens would take longer than computing it."""

    row = b""

    def _read_row(self, result: Mid, row: int, length: int) -> None:
        self.row = self.read(row, 4 * length)


class Fuel(Contestant):
    """Runs in the host of `metered_host`, without forced tokens. `idle` does the work of `Aici.idle`."""

    name = "fuel"

    def __init__(self, program: Program, vocab: Vocab, argument: str) -> None:
        self._program, self._vocab, self._argument = program, vocab, argument
        self._template: MeteredGuest | None = None
        self._guest: _Guest | None = None
        self._is_warm = False
        self._news: Sequence[int] = ()
        #: units that the last compilation or mask took
        self.fuel = 0

    def compile(self) -> None:
        self.close()
        try:
            self._template = _Guest(
                *(self._program, self._vocab, self._argument), capabilities={**EVERYTHING, CAP_TOKENIZER: 0}
            )
        except (AiciError, GuestExit) as error:
            raise Refused(str(error)) from error
        self._is_warm = False
        self.fuel = used(self._template.instance) - self._template.start_fuel

    def reset(self) -> None:
        self._end()
        assert self._template is not None
        self._guest, self._news = self._template.fork(2), ()

    def mask(self) -> None:
        assert self._guest is not None
        before = used(self._guest.instance)
        if self._guest.step(self._news).row.verb == STOP:  # the text can only end
            self._guest.row = b""
        self.fuel = used(self._guest.instance) - before

    def accept(self, token: int) -> None:
        self._news = (token,)

    def row(self) -> bytes:
        assert self._guest is not None
        return self._guest.row

    def idle(self) -> None:
        assert self._template is not None and self._guest is not None
        found = self._guest.found()
        self._end()
        begin = used(self._template.instance)
        while not self._is_warm and used(self._template.instance) - begin < _WARM_FUEL:
            self._is_warm = self._template.warm(_WARM_CALLS) < _WARM_CALLS
        self._is_warm = True
        if found:
            self._template.learn(found)

    def close(self) -> None:
        self._end()
        if self._template is not None:
            self._template.instance.close()
            self._template = None

    def _end(self) -> None:
        if self._guest is not None:
            self._guest.instance.close()
            self._guest = None
