"""A chat of two turns in one run: the script asks again, as a user in the model's own chat format.

Prompt: What is the capital of France?
Argument: Name one river in that country.
"""

from aici import arg, gen, set_var, user


async def main():
    # the prompt is a chat, so the model's answer comes first
    answer = await gen(max_tokens=24)
    # Ends the answer, writes the message and begins the next answer, with the tokens that the model's chat
    # template has there. The cache keeps what the model has read; nothing is read again.
    await user(arg)
    # a pattern for this answer alone
    river = await gen(regex=r"[A-Z][^\n.]{2,60}\.", max_tokens=24)
    set_var("answers", answer + "\n" + river)
