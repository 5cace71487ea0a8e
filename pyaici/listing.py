"""The list of stored modules, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aicirt.contract.modules import ModuleInfo

if TYPE_CHECKING:
    from pyaici.control import Control


def list_page(control: Control, after: str = "", found_by: str | None = None) -> list[ModuleInfo]:
    """The next modules by id, from behind the id `after`; none at the end.

    `found_by`: only those that this owner has uploaded, or that have a tag.
    """
    page = control.call("list", after=after, found_by=found_by)
    return [ModuleInfo.from_wire(wire) for wire in page]


def list_modules(control: Control) -> Iterator[ModuleInfo]:
    """All of them, by id."""
    after = ""
    while page := list_page(control, after):
        yield from page
        after = page[-1].id
