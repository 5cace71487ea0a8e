"""Lets the model call tools until it answers: the script of requests with tools of the type mcp.

`arg` is from the server: `grammars` of the first answer, of the next ones, and of the last one, which
has no calls; `max_calls`; `max_tokens` of all answers, or None; `results`: the role of their messages.
"""

import json

from aici import CallError, Error, arg, call, fail, generate, kbnf, tokens, tool, user

try:
    GRAMMARS = {name: kbnf(text) for name, text in arg["grammars"].items()}
except Error as error:  # a schema of a tool that cannot be enforced
    fail(str(error))


async def main():
    calls_left, tokens_left = arg["max_calls"], arg["max_tokens"]
    grammar = GRAMMARS["first"]
    while True:
        answer = await generate(grammar, max_tokens=tokens_left, leave=False, logprobs=False)
        if tokens_left is not None:
            tokens_left -= len(answer.tokens)
        # the server reads the answer: it knows how the model writes calls
        found = await call("calls_of_answer", at=len(tokens()), finish_reason=answer.finish_reason)
        results = await call_tools(found["calls"], calls_left)
        if not found["more"]:
            return
        if arg["results"] == "tool":
            for name, result in results:
                await tool(name, result)
        else:
            texts = ["<tool_response>\n" + result + "\n</tool_response>" for name, result in results]
            await user("\n".join(texts))
        calls_left -= len(results)
        grammar = GRAMMARS["next" if calls_left > 0 else "last"]
        await call("next_answer", at=len(tokens()))


async def call_tools(calls, most):
    # All work at the same time. Returns (name, result or error as a text) of each.
    under_way = [(each["name"], call(each["call"], each["arguments"])) for each in calls[:most]]
    results = []
    for name, started in under_way:
        try:
            result = await started
        except CallError as error:
            result = "error: " + str(error)
        results.append((name, result if isinstance(result, str) else json.dumps(result)))
    for each in calls[most:]:
        results.append((each["name"], "error: no more calls are allowed"))
    return results
