"""A file descriptor with an owner."""

from __future__ import annotations

import os


class Descriptor:
    """Closes itself when nobody refers to it any more."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)
