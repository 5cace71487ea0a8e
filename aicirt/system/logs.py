"""The daemon's log: one line per event, as text or JSON, without any user content."""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

#: for `--log-format`
FORMATS = ("text", "json")
_OURS = "aicirt"


def fields(**known: Any) -> dict[str, Any]:
    """Returns the `extra` of a log call: machine-readable fields (worker, client, owner, module, code)."""
    return {"fields": known}


def configure(form: str, level: int | str) -> None:
    """Sends this process's log, including exceptions that end the process or a thread, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else Lines())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    log = logging.getLogger(_OURS)

    def log_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log.critical("ended by an error", exc_info=(kind, error, trace))

    def thread_ended(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            log.error(
                "a thread ended by an error", exc_info=(args.exc_type, args.exc_value, args.exc_traceback)
            )

    sys.excepthook = log_error
    threading.excepthook = thread_ended


class Lines(logging.Formatter):
    """Formats events as text for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(event)s")

    def format(self, record: logging.LogRecord) -> str:
        """Returns one line, followed by more lines if there was an exception."""
        record.event = _event(record)
        # another formatter may have cached its text of the exception here
        record.exc_text = None
        return super().format(record)

    def usesTime(self) -> bool:  # logging's own name
        """Returns True, since every line has its time."""
        return True

    def formatException(self, ei: Any) -> str:
        """Returns the type of an exception and its places in the code, without its message."""
        return "\n".join(_where(ei[1]))


class JsonLines(logging.Formatter):
    """Formats each event as a line of JSON: time (UTC), level, logger, event, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = _where(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False, default=type)


def _event(record: logging.LogRecord) -> str:
    """Returns the message, but only its first line if it comes from another library.

    Further lines, of asyncio's messages for instance, describe an exception.
    """
    message = record.getMessage()
    return message if record.name.partition(".")[0] == _OURS else message.partition("\n")[0]


def _where(error: BaseException | None) -> list[str]:
    """Returns the types of an exception and its causes, each with its lines of code, innermost first."""
    found: list[str] = []
    while error is not None:
        found.append(type(error).__qualname__)
        frames = traceback.extract_tb(error.__traceback__)
        found += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in reversed(frames)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found
