"""Writes until a checker outside accepts the text, and reads its objection each time.

Prompt: Invent a user name for a friend of cats.
"""

from aici import backtrack, call, force, gen, label, set_var


async def main():
    start = label()
    for attempt in range(1, 6):
        await force("User name: ")
        name = await gen(regex="[a-z][a-z0-9_]{3,11}", temperature=0.3 * attempt, max_tokens=8)
        verdict = await call("check", name=name)
        if verdict["accepted"]:
            set_var("name", name)
            set_var("attempts", str(attempt))
            await backtrack(start)  # only the name that was accepted remains
            await force(f"User name: {name}")
            return
        await force(f"\nNot accepted: {verdict['reason']}.\n")
    await backtrack(start)
    await force("There is no such name.")
