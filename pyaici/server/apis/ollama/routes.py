"""Routes of Ollama's API: `POST /api/generate`, `POST /api/chat`, `GET /api/tags` and `POST /api/show`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from sse_starlette import ServerSentEvent

from pyaici.server.answers.calls import Call
from pyaici.server.answers.plan import THINK, AnswerPlan
from pyaici.server.answers.reader import Reasoning, Text, open_reader
from pyaici.server.answers.stops import Stop
from pyaici.server.answers.thinking import switches, takes_effort
from pyaici.server.apis.answers import respond
from pyaici.server.apis.json_bodies import JsonRoute
from pyaici.server.apis.ollama.requests import ChatBody, GenerateRequest, ModelName
from pyaici.server.apis.openai.chat_plan import ChatPlan, plan_chat
from pyaici.server.apis.openai.constraints import constraint
from pyaici.server.apis.sampling import sampling
from pyaici.server.apis.tokens import Version, version
from pyaici.server.http.access import Runner
from pyaici.server.http.errors import ApiError, bad_request
from pyaici.server.http.sse import JsonLine, while_connected
from pyaici.server.http.users import User
from pyaici.server.models import ServedModel
from pyaici.server.service import Job, Service

router = APIRouter(tags=["ollama"], route_class=JsonRoute)
router.add_api_route("/api/version", version, response_model=Version)
_LINES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, "application/x-ndjson": {}}}
}
#: special tokens of models that fill in a text: before the beginning, before the end, before the answer
_FILLS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
)


@router.post("/api/generate", response_model=None, responses=_LINES)
async def generate(
    request: Request, response: Response, body: GenerateRequest, user: Runner
) -> Response | dict[str, Any]:
    """Continues or fills in a text, or answers a question, as Ollama does; docs/ollama.md describes it."""
    service = _service(request, body.model)
    if not body.prompt and not body.suffix:
        return _loaded(body.model, {"response": ""})
    return await _answer_generation(
        request, response, body, partial(_plan_text, service.model, body, user), user
    )


@router.post("/api/chat", response_model=None, responses=_LINES)
async def chat(
    request: Request, response: Response, body: ChatBody, user: Runner
) -> Response | dict[str, Any]:
    """Answers a chat, as Ollama does; docs/ollama.md describes it."""
    service = _service(request, body.model)
    if not body.messages:
        return _loaded(body.model, {"message": {"role": "assistant", "content": ""}})
    return await _answer_generation(
        request, response, body, partial(_plan_chat, service.model, body, user), user
    )


def _loaded(model: str, empty: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer to a request without a prompt, which asks to load the model."""
    return {"model": model, "created_at": _now(), **empty, "done": True, "done_reason": "load"}


@router.get("/api/tags")
@router.get("/api/ps")
async def tags(request: Request, user: Runner) -> dict[str, Any]:
    """Lists the model that is served."""
    model: ServedModel = request.app.state.service.model
    created = datetime.fromtimestamp(int(model.created), UTC).isoformat()
    return {
        "models": [
            {
                "name": model.name,
                "model": model.name,
                "modified_at": created,
                "size": 0,
                "digest": hashlib.sha256(model.fingerprint.encode()).hexdigest(),
                "details": _details(),
            }
        ]
    }


@router.post("/api/show")
async def show(request: Request, body: ModelName, user: Runner) -> dict[str, Any]:
    """Describes the served model, if it has this name."""
    model = _service(request, body.model).model
    reasons = THINK in model.chat_template or takes_effort(model) or bool(switches(model, True))
    can = {
        "completion": True,
        "tools": bool(model.chat_template),
        "thinking": reasons,
        "insert": _fill_marks(model) is not None,
    }
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _details(),
        "model_info": {"general.architecture": "aici", "aici.context_length": model.max_context},
        "capabilities": [name for name, able in can.items() if able],
    }


def _details() -> dict[str, Any]:
    unknown = dict.fromkeys(("parent_model", "format", "family", "parameter_size", "quantization_level"), "")
    return {**unknown, "families": []}


def _service(request: Request, name: str) -> Service:
    """Returns the service. Raises ApiError if a request names another model."""
    service: Service = request.app.state.service
    service.model.check_name(name.removesuffix(":latest"))
    return service


def _plan_chat(model: ServedModel, body: ChatBody, user: User) -> ChatPlan:
    return plan_chat(model, body.chat(), user)


def _plan_text(model: ServedModel, body: GenerateRequest, user: User) -> ChatPlan:
    request = body.chat()
    if not (body.raw or body.suffix) and model.chat_template:
        return plan_chat(model, request, user)
    prompt = body.prompt
    if body.suffix:
        marks = _fill_marks(model)
        if marks is None:
            raise bad_request(f"the model {model.name} does not fill in: leave out suffix", "suffix")
        begin, rest, answer = marks
        prompt = f"{begin}{prompt}{rest}{body.suffix}{answer}"
    elif body.system:
        raise bad_request("a system message needs a chat template, and no raw", "system")
    call = constraint(request, request.response_format)
    job = Job(user, model.encode(prompt), call, sampling(request, model), request.max_tokens)
    return ChatPlan(job, AnswerPlan(stop=tuple(request.stop_strings)))


def _fill_marks(model: ServedModel) -> tuple[str, str, str] | None:
    names = set(model.vocabulary.special_names.values())
    return next((marks for marks in _FILLS if names.issuperset(marks)), None)


async def _answer_generation(
    request: Request,
    response: Response,
    body: GenerateRequest | ChatBody,
    read: Callable[[], ChatPlan],
    user: User,
) -> Response | dict[str, Any]:
    service: Service = request.app.state.service
    plan = await while_connected(request, service.reading.read(user, read))
    answer = _Answer(service, body, plan)
    return await respond(request, response, body, answer, stream=body.stream)


class _Answer:
    """An answer, as lines of JSON."""

    def __init__(self, service: Service, body: GenerateRequest | ChatBody, plan: ChatPlan) -> None:
        self._service, self._body, self._plan = service, body, plan
        self._begun = time.perf_counter_ns()

    async def lines(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the lines of a stream; the first one is empty. Raises ApiError."""
        plan, reader = self._plan, open_reader(self._plan.answer)
        first, tokens = 0, 0
        deltas = plan.deltas(self._service, plan.job, reader)
        try:
            async for delta in deltas:
                tokens += delta.grown
                if tokens and not first:
                    first = time.perf_counter_ns()
                # nothing is backtrack: the only controllers here are grammars, which never backtrack
                for found in delta.events:
                    if not isinstance(found, Stop):
                        yield self._line(self._fields(found), done=False)
                if delta.finish is not None:
                    now = time.perf_counter_ns()
                    first = first or now
                    yield {
                        **self._line({}, done=True),
                        "done_reason": "length" if delta.finish == "length" else "stop",
                        "total_duration": now - self._begun,
                        "load_duration": 0,
                        "prompt_eval_count": len(plan.job.prompt),
                        "prompt_eval_duration": first - self._begun,
                        "eval_count": tokens,
                        "eval_duration": now - first,
                    }
        finally:
            await deltas.aclose()

    def _fields(self, found: Text | Reasoning | Call) -> dict[str, Any]:
        if isinstance(found, Call):
            return {"tool_calls": [{"function": {"name": found.name, "arguments": found.arguments}}]}
        return {"thinking" if isinstance(found, Reasoning) else "content": found.text}

    def _line(self, fields: dict[str, Any], *, done: bool) -> dict[str, Any]:
        line: dict[str, Any] = {"model": self._body.model, "created_at": _now()}
        if isinstance(self._body, ChatBody):
            line["message"] = {"role": "assistant", "content": "", **fields}
        else:
            line |= {"response": fields.get("content", "")}
            line |= {"thinking": fields["thinking"]} if "thinking" in fields else {}
        return {**line, "done": done}

    async def events(self) -> AsyncGenerator[ServerSentEvent, None]:
        """Yields the lines of a stream. An error after the first one is a line, too."""
        begun, lines = False, self.lines()
        try:
            async for line in lines:
                begun = True
                yield JsonLine(line)
        except ApiError as error:
            if not begun:
                raise
            yield JsonLine({"error": error.message})
        finally:
            await lines.aclose()

    async def whole(self) -> dict[str, Any]:
        """Returns the answer when it is complete. Raises ApiError."""
        texts = {"content": "", "thinking": ""}
        calls: list[Any] = []
        last: dict[str, Any] = {}
        async for last in self.lines():
            part = last.get("message") or {"content": last["response"], "thinking": last.get("thinking", "")}
            texts["content"] += part["content"]
            texts["thinking"] += part.get("thinking", "")
            calls += part.get("tool_calls", [])
        fields: dict[str, Any] = {name: text for name, text in texts.items() if text}
        if calls:
            fields["tool_calls"] = calls
        return {**last, **self._line(fields, done=True)}


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
