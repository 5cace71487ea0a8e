"""The regex engine, compiled to Wasm with probe.cpp, behind Python methods."""

from __future__ import annotations

from pathlib import Path

from lab.runners.probe import Probe
from pyaici.toolchain import build_controller

PROBE = Path(__file__).with_name("probe.cpp")
NO_BYTE = 256


class Refused(Exception):
    """The engine refuses a pattern: `message` as a user sees it, `offset` in bytes."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.offset = message, offset


class Engine(Probe):
    """Holds one pattern, which `compile` replaces."""

    def compile(self, pattern: str | bytes) -> None:
        data = pattern.encode() if isinstance(pattern, str) else pattern
        if not self._call("probe_compile", self._put(data), len(data)):
            raise Refused(self._text(self._call("probe_error")), self._call("probe_error_offset"))

    def limits(self, *, nfa_states: int = 0, automaton_bytes: int = 0, kept_bytes: int = 0) -> None:
        """For later calls of `compile`; 0 is the default."""
        self._call("probe_limits", nfa_states, automaton_bytes, kept_bytes)

    def characters(self) -> bytes:
        """For each code point 1 if it alone matches."""
        at = self._room(0x110000)
        self._call("probe_characters", 0, 0x110000, at)
        return self._get(at, 0x110000)

    def next_states(self, state: int) -> list[int]:
        """The next state for each byte."""
        at = self._room(1024)
        self._call("probe_row", state, at)
        row = self._get(at, 1024)
        return [int.from_bytes(row[i : i + 4], "little") for i in range(0, 1024, 4)]

    def inexact_states(self, most: int) -> int | None:
        """Returns how many live states cannot reach a match; None if there are more than `most` states."""
        found = self._number("probe_inexact_states", most)
        return None if found == 0xFFFFFFFF else found

    def accepting(self, state: int) -> bool:
        return bool(self._call("probe_accepting", state))

    def forced(self, state: int) -> int | None:
        byte = int(self._call("probe_forced", state))
        return None if byte == NO_BYTE else byte

    def exhausted(self) -> bool:
        return bool(self._call("probe_exhausted"))

    def compact(self, state: int) -> int:
        """The state's new number, or 0 if nothing was dropped."""
        return self._number("probe_compact", state)

    def bytes(self) -> int:
        return int(self._call("probe_bytes"))

    def num_states(self) -> int:
        return int(self._call("probe_num_states"))

    def unicode_version(self) -> str:
        return self._text(self._call("probe_unicode_version"))


def build(folder: Path) -> Path:
    return build_controller([PROBE], folder / "regex_probe.wasm").path
