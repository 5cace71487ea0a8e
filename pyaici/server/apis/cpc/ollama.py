"""A completion by a server of Ollama, for comparison: the prompt asks its model for the prefix."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import httpx2

from pyaici.server.http.errors import ApiError

if TYPE_CHECKING:
    from pyaici.server.apis.cpc.requests import CpcRequest


#: stop strings of the model's answer; some are in the prompt, and models tend to repeat them
_STOP = ["\n\n", "\r\n\r\n", "</CONTEXT>", "</PREFIX>", "```"]
#: tokens beyond those requested: for the prefix, and what surrounds it
_SPARE_TOKENS = 64
_TIMEOUT = httpx2.Timeout(600, connect=10)


class OllamaCompletion:
    """A suggestion. Read `chunks` first, then the other attributes."""

    def __init__(self, request: CpcRequest, url: str, model: str, seed: int | None) -> None:
        self._request, self._url, self._model, self._seed = request, url.rstrip("/"), model, seed
        #: whether the model began with the prefix by itself; None while that is not known
        self.adhered: bool | None = None
        self.nbytes = 0

    async def chunks(self) -> AsyncGenerator[str, None]:
        """Yields the suggestion in pieces, up to the end of the line after the prefix. Raises ApiError."""
        written = 0
        async for text in self._texts():
            line, newline, _ = text[(begin := max(0, len(self._request.prefix) - written)) :].partition("\n")
            written += len(text)
            text = text[:begin] + line
            self.nbytes += len(text.encode())
            if text:
                yield text
            if newline:
                return

    async def _texts(self) -> AsyncGenerator[str, None]:
        """Yields the model's text, with the prefix added in front if the text does not begin with it."""
        prefix, held = self._request.prefix, ""
        async for piece in self._pieces():
            if self.adhered is not None:
                yield piece
                continue
            held += piece
            if not prefix[:1].isspace():  # chat models begin with blanks that mean nothing
                held = held.lstrip()
            if len(held) < len(prefix) and prefix.startswith(held):
                continue
            self.adhered = held.startswith(prefix)
            yield held if self.adhered else prefix + held
        if self.adhered is None:  # ended within the prefix, or without text
            self.adhered = False
            yield prefix

    async def _pieces(self) -> AsyncGenerator[str, None]:
        body = {
            "model": self._model,
            "prompt": prompt_of(self._request),
            "stream": True,
            "options": {
                "temperature": self._request.temperature,
                "top_p": self._request.top_p,
                "top_k": self._request.top_k,
                "num_predict": self._request.max_new_tokens + _SPARE_TOKENS,
                "stop": _STOP,
                **({} if self._seed is None else {"seed": self._seed & 0x7FFFFFFF}),
            },
        }
        try:
            async with httpx2.AsyncClient(timeout=_TIMEOUT) as client:
                async with client.stream("POST", f"{self._url}/api/generate", json=body) as answer:
                    if answer.is_error:
                        await answer.aread()
                        raise self._failed(_reason(answer))
                    async for line in answer.aiter_lines():
                        if not line:
                            continue
                        message: dict[str, Any] = json.loads(line)
                        if message.get("error"):
                            raise self._failed("it failed while it generated")
                        if message.get("response"):
                            yield str(message["response"])
                        if message.get("done"):
                            return
        except httpx2.HTTPError as error:
            raise self._failed(f"it does not answer ({type(error).__name__})") from None
        except ValueError:
            raise self._failed("its answer is not in the format of Ollama's API") from None

    def _failed(self, reason: str) -> ApiError:
        """Returns the error of a failed completion.

        `reason` must not reveal where Ollama runs or what is behind it, as its own errors do.
        """
        return ApiError(
            502,
            f"Ollama cannot complete with {self._model!r}: {reason}; start Ollama (`ollama serve`), download "
            "the model (`ollama pull`), or set OLLAMA_URL and OLLAMA_MODEL",
            kind="api_error",
            code="ollama",
        )


def prompt_of(request: CpcRequest) -> str:
    """Returns the prompt. The prefix comes last, so that the model continues it by continuing the text."""
    language = f" in {request.lang}" if request.lang else ""
    form = (
        "Answer with the completed line alone: no explanation, no quotes, no code fence."
        if request.code_only
        else "You may say in a comment what it does."
    )
    return (
        f"Complete the line that somebody is typing{language}. What stands before it is between <CONTEXT> "
        "marks, its first characters are between <PREFIX> marks. Your answer must begin with exactly these "
        f"characters. {form}\n\n"
        f"<CONTEXT>\n{request.context}</CONTEXT>\n<PREFIX>{request.prefix}</PREFIX>\n"
    )


def _reason(answer: httpx2.Response) -> str:
    if answer.status_code == 404:  # the model is missing; Ollama's message says so
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return str(answer.json()["error"])
    return f"it answered with status {answer.status_code}"
