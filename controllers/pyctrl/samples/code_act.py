"""Acts by code (CodeAct): a tool runs the model's function against checks, and errors come back.

The published method (arXiv 2402.01030) lets the code call the tools, keeps the state of its interpreter
from one turn to the next, and trains the model for it. Here each attempt is a program of its own, and
checks decide.

Prompt: Write a Python function double(n) that returns twice the number n.
Argument: assert [double(n) for n in (0, 1, 4)] == [0, 2, 8]
"""

from aici import CallError, arg, call, force, gen, regex, set_var

# The pattern limits the code to arithmetic, so the tool may run whatever the model writes, for a short
# time. The code may still be wrong, and it need not be valid Python.
BODY = regex(" [n0-9+*() -]{1,20}")


async def main():
    for attempt in range(1, 5):
        await force("```python\ndef double(n):\n    return")
        # a higher temperature each time, so that the model does not write the same again
        body = await gen(BODY, temperature=0.3 * attempt)
        code = f"def double(n):\n    return{body}\n"
        await force("\n```\n")
        try:
            await call("tools.run", code=code + arg)
        except CallError as error:
            # the model reads its error before it tries again
            await force(f"Error: {error}\n")
            continue
        await force("All checks pass.")
        set_var("code", code)
        set_var("attempts", str(attempt))
        return
    await force("I give up.")
