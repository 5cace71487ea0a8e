"""The plan for a chat: its prompt, its controller, and how its answer is read."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyaici.server.answers.arguments import read_json
from pyaici.server.answers.formats import CallFormat, Function
from pyaici.server.answers.grammar import answer_grammar
from pyaici.server.answers.known_formats import HERMES
from pyaici.server.answers.plan import (
    ANALYSIS,
    CHANNEL,
    END,
    FINAL,
    MESSAGE,
    NEXT,
    THINK,
    AnswerPlan,
    Marks,
    Start,
)
from pyaici.server.answers.templates import TemplateTools, template_tools
from pyaici.server.answers.thinking import (
    ThinkingLimit,
    limited_deltas,
    opens_thinking,
    switches,
    takes_effort,
)
from pyaici.server.answers.tools import OFFERED, ServerTool, ToolLoop, tool_deltas
from pyaici.server.apis.fields import argument_text
from pyaici.server.apis.mcp import (
    MAX_TOOL_CALLS,
    McpChoice,
    McpTool,
    result_turns,
    server_functions,
    tool_script,
)
from pyaici.server.apis.openai.constraints import constraint
from pyaici.server.apis.openai.requests import AllowedToolChoice, Message, Tool, ToolChoice
from pyaici.server.apis.sampling import sampling
from pyaici.server.http.errors import bad_request
from pyaici.server.service import ControllerCall, Job

if TYPE_CHECKING:
    from pyaici.server.answers.reader import Reader
    from pyaici.server.answers.text import TextDelta
    from pyaici.server.apis.openai.requests import ChatRequest
    from pyaici.server.http.users import User
    from pyaici.server.models import ServedModel
    from pyaici.server.service import Service
    from pyaici.tools.settings import OfferedTools


#: fields whose grammars allow reasoning first
_AFTER_REASONING = (
    *("tools", "json_schema", "guided_json", "structured_outputs.json", "structured_outputs.json_object"),
    *("response_format", "response_format.json_schema.schema", "structured_outputs.structural_tag"),
)


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """The plan for one chat."""

    job: Job
    #: how the answer is read
    answer: AnswerPlan
    #: ends reasoning by force; None = no limit
    limit: ThinkingLimit | None = None
    #: the tools that the job's script calls; None = it calls none
    loop: ToolLoop | None = None

    def deltas(self, service: Service, job: Job, reader: Reader) -> AsyncGenerator[TextDelta, None]:
        """Runs a copy of the job and yields its deltas. `reader`: reads the answer. Raises ApiError."""
        if self.loop is not None:
            return tool_deltas(service, job, self.loop, reader)
        limit = self.limit and replace(self.limit, rest=replace(self.limit.rest, sampling=job.sampling))
        return limited_deltas(service, job, limit, reader)


def plan_chat(
    model: ServedModel, request: ChatRequest, user: User, servers: Mapping[str, OfferedTools] | None = None
) -> ChatPlan:
    """Returns the plan for a chat. `servers`: the MCP servers of the operator.

    Raises ApiError if the request is not supported.
    """
    functions, tools = _functions(request, servers or {})
    known = template_tools(model.tokenizer, model.chat_template)
    if not known.form.supports(functions):
        known = TemplateTools(HERMES, system=known.system)
    known = replace(known, form=known.form.bound(functions))
    prompt = _prompt(model, request, functions, known)
    start = _find_start(model, prompt)
    form = known.form if functions else None
    if tools:
        return _plan_loop(model, request, Job(user, prompt), functions, tools, known, start)
    call, answer = _constraint(request, functions, form, start)
    if start.channels and call is not None and not _reasons_first(call):
        # the constraint is for the whole answer, so the prompt has its header
        prompt = [*prompt, *model.tokenizer.encode(FINAL, add_special_tokens=False)]
        answer = replace(answer, start=Start(open=True, channels=True))
    job = _job(model, request, Job(user, prompt, call))
    limit = None
    if (budget := _budget(request, call, answer.start)) is not None:
        rest, _ = _constraint(request, functions, form, Start(channels=start.channels))
        limit = ThinkingLimit(budget, replace(job, controller=rest))
        if start.channels:
            limit = replace(limit, forced=END + NEXT)
    return ChatPlan(job, answer, limit)


def _job(model: ServedModel, request: ChatRequest, job: Job) -> Job:
    """Returns a job with the request's way of choosing tokens."""
    return replace(
        job,
        sampling=sampling(request, model),
        max_tokens=request.max_completion_tokens or request.max_tokens,
        logprobs=bool(request.logprobs),
        top_logprobs=request.top_logprobs or 0 if request.logprobs else 0,
    )


def _plan_loop(
    model: ServedModel,
    request: ChatRequest,
    job: Job,
    functions: Sequence[Function],
    tools: Mapping[str, ServerTool],
    known: TemplateTools,
    start: Start,
) -> ChatPlan:
    """Returns the plan for a chat in which a script calls tools of MCP servers. Raises ApiError."""
    if request.thinking_token_budget not in (None, -1):
        problem = "thinking_token_budget cannot be combined with tools of the type mcp: leave it out"
        raise bad_request(problem, "thinking_token_budget")
    turns = result_turns(model, writes_results=known.writes_calls)
    own, script = request.model_copy(update={"script": None}), request.script
    _, first = _constraint(own, functions, known.form, start)
    first = replace(first, parallel=first.parallel and turns.several)
    opened = start.reasoning is not None and turns.opening.rstrip().endswith(start.reasoning.begin)
    later = replace(first, required=False, start=replace(start, open=opened))
    last = replace(later, form=None, functions=())
    grammars = {"first": first, "next": later, "last": last}
    argument = {
        "grammars": {name: answer_grammar(plan).argument for name, plan in grammars.items()},
        "max_calls": request.max_tool_calls or MAX_TOOL_CALLS,
        "max_tokens": request.max_completion_tokens or request.max_tokens,
        "results": turns.role,
    }
    job = replace(job, controller=tool_script(argument, script), calls=OFFERED, calls_tools=True)
    return ChatPlan(_job(model, request, job), first, loop=ToolLoop(tools, later))


def _budget(request: ChatRequest, call: ControllerCall | None, start: Start) -> int | None:
    """Returns the most tokens of reasoning; None if there is no limit."""
    if start.reasoning is None:
        return None
    if request.reasoning_effort == "none":
        return 0  # also for templates that have no variable for that
    if call is not None and not _reasons_first(call):
        return None  # the constraint is for the whole answer
    budget = request.thinking_token_budget
    return None if budget in (None, -1) else budget


def _constraint(
    request: ChatRequest, functions: Sequence[Function], form: CallFormat | None, start: Start
) -> tuple[ControllerCall | None, AnswerPlan]:
    """Returns the controller of an answer, and how the answer is read. Raises ApiError."""
    call = constraint(request, request.response_format, start, request.vllm_xargs)
    answer = AnswerPlan(start, stop=tuple(request.stop_strings))
    if form is not None:
        if call is not None and not _is_schema(call):
            raise bad_request("tools cannot be combined with this constraint: remove one of them", call.param)
        named = isinstance(request.tool_choice, ToolChoice)
        answer = replace(
            answer,
            form=form,
            functions=tuple(functions),
            required=named or _mode(request) == "required",
            parallel=request.parallel_tool_calls is not False and not named,
            schema=None if call is None else call.arg,
        )
        argument = argument_text(answer_grammar(answer).argument, "tools")
        call = ControllerCall("kbnf", argument, "tools", "tools")
    elif call is not None and start.reasoning is not None and _is_schema(call):
        # the model may reason before it answers
        grammar = answer_grammar(replace(answer, schema=call.arg))
        call = ControllerCall("kbnf", grammar.argument, call.param, call.arg_param)
    return call, answer


def _is_schema(call: ControllerCall) -> bool:
    """Returns whether a field of the request has a JSON Schema: it is for the answer, not for reasoning."""
    return call.controller == "json_schema" and _reasons_first(call)


def _reasons_first(call: ControllerCall) -> bool:
    """Returns whether the model may reason before the constraint applies."""
    return call.param in _AFTER_REASONING


def _functions(
    request: ChatRequest, servers: Mapping[str, OfferedTools]
) -> tuple[list[Function], dict[str, ServerTool]]:
    """Returns the functions that may be called, and which of them are tools of servers. Raises ApiError."""
    asked = [tool.function for tool in request.tools or () if isinstance(tool, Tool)]
    functions = [Function(tool.name, tool.parameters, tool.description) for tool in asked]
    labelled = [tool for tool in request.tools or () if isinstance(tool, McpTool)]
    served = server_functions(labelled, servers, [function.name for function in functions])
    tools = {tool.name: tool for _, tool in served}
    functions = _wanted(request, [*functions, *(function for function, _ in served)], tools)
    names = {function.name for function in functions}
    return functions, {name: tool for name, tool in tools.items() if name in names}


def _wanted(
    request: ChatRequest, functions: list[Function], tools: Mapping[str, ServerTool]
) -> list[Function]:
    """Returns those of the functions that `tool_choice` allows. Raises ApiError.

    `tools`: those of MCP servers, by name.
    """
    choice = request.tool_choice
    if isinstance(choice, McpChoice):
        functions = [function for function in functions if choice.takes(tools.get(function.name))]
        if not functions:
            there = ", ".join(tool.call for tool in tools.values()) or "none"
            raise bad_request(f"there is no such tool of an MCP server; there are: {there}", "tool_choice")
        return functions
    if not functions:
        if choice not in (None, "none", "auto"):
            raise bad_request("tool_choice requires a tool, but there are no tools", "tool_choice")
        return []
    if chosen := dict(_chosen(choice)):
        for name in chosen.keys() - {function.name for function in functions}:
            raise bad_request(f"there is no tool {name!r}", chosen[name])
        functions = [function for function in functions if function.name in chosen]
    return [] if choice == "none" else functions


def _mode(request: ChatRequest) -> str | None:
    """Returns "required" if the answer must be a call."""
    choice = request.tool_choice
    if isinstance(choice, McpChoice):
        return "required"
    if isinstance(choice, AllowedToolChoice):
        return choice.allowed_tools.mode
    return choice if isinstance(choice, str) else None


def _chosen(choice: str | ToolChoice | McpChoice | AllowedToolChoice | None) -> list[tuple[str, str]]:
    """Returns the tools that `tool_choice` names, with the place of each in the request."""
    if isinstance(choice, ToolChoice):
        return [(choice.function.name, "tool_choice.function.name")]
    if isinstance(choice, AllowedToolChoice):
        tools = choice.allowed_tools.tools
        return [(tool.function.name, "tool_choice.allowed_tools.tools") for tool in tools]
    return []


def _prompt(
    model: ServedModel, request: ChatRequest, functions: Sequence[Function], known: TemplateTools
) -> list[int]:
    turns = [turn for message in request.messages for turn in message.turns]
    if known.writes_calls and not known.several_calls:
        turns = list(_one_call_each(turns))
    messages: list[dict[str, Any]] = []
    for number, message in enumerate(turns):
        wire = _message(message, known)
        if number and message.role == turns[number - 1].role == "tool" and not known.writes_calls:
            messages[-1]["content"] += f"\n{wire['content']}"  # as the script of such a chat writes them
        else:
            messages.append(wire)
    tools = None
    if functions and known.describes_tools:
        tools = [function.described() for function in functions]
    elif functions:
        _put_in_front(messages, known.form.describe(functions), "system" if known.system else "user")
    arguments = {**_reasoning_arguments(model, request), **(request.chat_template_kwargs or {})}
    return model.encode_chat(messages, tools=tools, template_arguments=arguments)


def _one_call_each(turns: Sequence[Message]) -> Iterator[Message]:
    """Yields messages with one call each, and its result, for templates that take no more."""
    calls: list[Message] = []
    for turn in turns:
        if turn.role != "tool":
            yield from calls
            own = turn.tool_calls or ()
            calls = [Message(role="assistant", tool_calls=[call]) for call in own[1:]]
            yield turn.model_copy(update={"tool_calls": own[:1]}) if calls else turn
            continue
        for call in calls:
            if call.tool_calls and call.tool_calls[0].id == turn.tool_call_id:
                calls.remove(call)
                yield call
                break
        yield turn
    yield from calls


def _reasoning_arguments(model: ServedModel, request: ChatRequest) -> dict[str, Any]:
    """Returns the variables of the chat template for `reasoning_effort`. Raises ApiError."""
    effort = request.reasoning_effort
    if effort is None:
        return {}
    arguments = switches(model, effort != "none")
    if takes_effort(model):
        return arguments if effort == "none" and arguments else {**arguments, "reasoning_effort": effort}
    if effort != "none" and not arguments and THINK not in model.chat_template:
        words = "this model does not reason: leave out reasoning_effort (in Ollama's API: think)"
        raise bad_request(words, "reasoning_effort")
    return arguments


def _message(message: Message, known: TemplateTools) -> dict[str, Any]:
    """Returns a message as templates take it.

    If the template does not write calls, the message has calls and results as texts.
    """
    role = "system" if message.role == "developer" else message.role
    wire: dict[str, Any] = {"role": role, "content": message.text}
    if message.name is not None and known.writes_calls:
        wire["name"] = message.name
    calls = [
        (known.form.call_id(call.id), call.function.name, _arguments(call.function.arguments))
        for call in message.tool_calls or ()
    ]
    if known.writes_calls:
        if calls:
            wire |= known.message(message.text, calls)
        if role == "tool":
            wire["tool_call_id"] = known.form.call_id(message.tool_call_id)
        return wire
    if calls:
        written = known.form.write([(name, arguments) for _, name, arguments in calls])
        wire["content"] = "\n".join(filter(None, (message.text, written)))
    if role == "tool":
        wire = {"role": "user", "content": f"<tool_response>\n{message.text}\n</tool_response>"}
    return wire


def _arguments(text: str) -> dict[str, Any] | str:
    """Returns the arguments of an earlier call, as a text if they are no object.

    A model may have written such a call, or another server; the answer to it is in the next message.
    """
    with suppress(ValueError):
        if isinstance(found := read_json(text if text.strip() else "{}"), dict):
            return found
    return text


def _put_in_front(messages: list[dict[str, Any]], text: str, role: str) -> None:
    """Adds instructions to the system message, or to the user's if the template has no system messages."""
    if messages and messages[0]["role"] == role:
        own = messages[0]["content"]
        messages[0]["content"] = f"{own}\n\n{text}" if role == "system" else f"{text}\n\n{own}"
    else:
        messages.insert(0, {"role": role, "content": text})


def _find_start(model: ServedModel, prompt: list[int]) -> Start:
    """Returns how the answer begins. A model reasons if its template contains the marker for that.

    The template may write that marker into the prompt.
    """
    if CHANNEL in model.chat_template and MESSAGE in model.chat_template:
        return Start(Marks(ANALYSIS, END), channels=True)
    reasoning = Marks()
    if reasoning.begin not in model.chat_template:
        return Start()
    return Start(reasoning, open=opens_thinking(model, prompt))
