"""What can be wrong with a script before its controller sees it."""

from __future__ import annotations

from aicirt.contract.errors import AiciError


class ScriptFileError(AiciError):
    """The file is not there, cannot be read, is no UTF-8 or too long."""

    code = "script_file"


class InterpreterMissingError(AiciError):
    """The controller that runs scripts of this language has not been built."""

    code = "interpreter_missing"
