"""Answers with a quotation: a search outside returns a passage, of which the model may only copy a part.

Prompt: When was the bridge over the river opened?
"""

from aici import CallError, call, force, gen, set_var, substring


async def main():
    await force("Search:")
    words = (await gen(regex=" [a-z]{3,12}( [a-z]{3,12}){0,2}", max_tokens=8)).strip()
    try:
        passage = await call("search", query=words)
    except CallError as error:
        await force(f"\nThe search has failed: {error.code}.")
        return
    set_var("passage", passage)
    await force(f"\nPassage: {passage}\nThe answer in the passage's own words: \"")
    quotation = await gen(substring(passage, end='"'), max_tokens=30)
    if not quotation.endswith('"'):
        await force('"')
    set_var("quotation", quotation.rstrip('"'))
