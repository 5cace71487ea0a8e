"""A chat that lasts: the run waits for the next message of its user, and keeps what was agreed.

The model's cache keeps what was said, and variables keep what was agreed: nothing is sent or read again.
Facts that the user asks to remember stand before each later question. A real assistant would choose some.

Prompt: Hello!
"""

from aici import gen, receive, set_var, user


async def main():
    facts: list[str] = []
    await gen(max_tokens=24)
    while (message := await receive()) is not None:
        if message.startswith("remember "):
            facts.append(message[len("remember ") :])
            set_var("facts", "\n".join(facts))
        else:
            await user("\n".join(facts) + "\n" + message)
            set_var("answer", await gen(max_tokens=24))
