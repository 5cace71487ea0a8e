"""Has a controller read its argument before a model is loaded, which takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aicirt.contract.errors import ArgumentError, VocabularyError
from pyaici.capabilities import ALL, Capabilities

if TYPE_CHECKING:
    from pyaici.runtime import Runtime


#: for those who gave no argument: they may not know that there is one
HINT = "--arg TEXT or --arg @FILE gives one"


def try_argument(
    runtime: Runtime, module: str, arg: str | bytes | None, folder: Path, capabilities: Capabilities = ALL
) -> None:
    """Needs the tokenizer in a model's `folder`, no more. `arg` None: the user gave none.

    Raises ArgumentError if the controller refuses it, and every other error that its constructor ends with.
    """
    from pyaici.tokens import load_vocabulary

    try:
        vocabulary = load_vocabulary(folder)
    except VocabularyError:
        return  # what the library makes of this folder may be another matter: the engine will say
    runtime.register(vocabulary)
    try:
        runtime.prepare(module, arg or "", capabilities=capabilities)
    except ArgumentError as error:
        if arg is not None:
            raise
        raise ArgumentError(f"{error.message}; {HINT}", **error.detail) from None
