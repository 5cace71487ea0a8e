"""The best of four answers: four forks write in parallel, and the likeliest text wins.

Prompt: Write a slogan for a bakery.
"""

from aici import force, gather, generate, set_var


async def attempt():
    # generate is gen with all details; at this temperature, the forks write different texts
    out = await generate(regex='[A-Z][^\n"]{5,60}[.!]', temperature=0.9, max_tokens=16)
    # the mean over the tokens, since the sum would favour short texts
    return [out.logprob / max(1, len(out.details)), out.text]


async def main():
    # the forks share the prompt's cache and a forward pass, so four cost little more than one
    tries = await gather(attempt, attempt, attempt, attempt)
    score, text = max(tries)
    await force(text)
    set_var("score", f"{score:.3f}")
