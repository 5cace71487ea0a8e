"""The options of `aici run` and harness/run_hf.py, and the request that they ask for."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from pyaici.engines.hf.request import Request, Sampling
from pyaici.grammars import find_grammar


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds what `read_request` reads, `--model`, `--device` and `--socket`; all but `controller`."""
    parser.add_argument(
        "--arg",
        metavar="TEXT",
        help="the controller's argument; @FILE reads it from a file, a newline at its end left out; FILE may "
        "be the name of a grammar that comes with the package",
    )
    parser.add_argument(
        "--prompt", metavar="TEXT", help="what the model is asked; @FILE reads it from a file in the same way"
    )
    parser.add_argument(
        "--chat",
        action=argparse.BooleanOptionalAction,
        help="put the prompt into the model's chat template (default: if it has one)",
    )
    parser.add_argument(
        "--model", metavar="PATH", help="folder of a Transformers model (default: SmolLM2-135M-Instruct)"
    )
    parser.add_argument(
        "--device", help="where the model runs, e.g. cpu or cuda:1 (default: cuda if there is one)"
    )
    parser.add_argument(
        "--socket",
        type=Path,
        metavar="PATH",
        default=os.environ.get("AICI_SOCKET") or None,
        help="of a running aicirt (default: $AICI_SOCKET; without it one is started)",
    )
    parser.add_argument("--n", type=int, default=1, help="sequences to sample")
    parser.add_argument("--beams", type=int, default=1, help="search with so many beams instead of sampling")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 = most likely token (default)")
    parser.add_argument(
        "--top-p", type=float, default=1.0, help="sample from the most likely tokens of this probability"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, help="sample from so many most likely tokens (0 = all)"
    )
    parser.add_argument("--seed", type=int, help="makes a run repeatable")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens after the prompt (default: 128)")


def read_request(arguments: argparse.Namespace) -> Request:
    """What the options ask for: its prompt is the plain text, its module is left open.

    Raises ValueError for a number out of range and for a file that cannot be read.
    """
    return Request(
        _text("--prompt", arguments.prompt),
        arg=_argument(arguments.arg or ""),
        sampling=Sampling(arguments.temperature, arguments.top_p, arguments.top_k, arguments.seed),
        n=arguments.n,
        beams=arguments.beams,
        max_tokens=arguments.max_tokens,
    )


def _argument(value: str) -> str:
    """What --arg says; a file that is not there may be a grammar of the package."""
    if value.startswith("@") and not Path(value[1:]).exists():
        if grammar := find_grammar(value[1:]):
            value = f"@{grammar}"
    return _text("--arg", value)


def _text(option: str, value: str) -> str:
    """The text itself, or that of the file behind an @, without the line end that editors put at its end."""
    if not value.startswith("@"):
        if not value.isascii():
            _check_utf8(option, value)
        return value
    name = value[1:]
    try:
        return Path(name).read_text("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{option}: the file {name!r} is not UTF-8 ({error})") from None
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise ValueError(f"{option}: cannot read {name!r}, the file after @: {reason}") from None


def _check_utf8(option: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{option}: this text is not UTF-8: {value!r}") from None
