"""Retrieval that quotes: each claim ends with a source and a part of it, word for word.

The pattern of a quotation is made from what the database has returned, so no quotation is invented.
Published methods (GopherCite, arXiv 2203.11147) also train the model to quote what supports the claim;
nothing here checks that.

Prompt: When was the bridge opened, and how high is the tower?
"""

import json

from aici import backtrack, call, force, gen, label, set_var, substring

CLAIMS = 2


async def main():
    start = label()
    await force("Search for:")
    words = (await gen(regex=" [a-z]{3,12}( [a-z]{3,12})?")).strip()
    rows = (await call("tools.passages", words=words))["result"]
    passages = {str(row["id"]): row["text"] for row in rows}
    if not passages:
        await force("I have found nothing.", after=start)
        return
    await force("\n" + "".join([f"[{name}] {text}\n" for name, text in passages.items()]))

    sources, answer = list(passages), ""
    quotes: list[list[str]] = []
    while sources and len(quotes) < CLAIMS:
        await force("[")
        name = await gen(choice=sources)
        sources.remove(name)
        await force('] "')
        # the model chooses one passage, and then can copy from this passage only
        quote = await gen(substring(passages[name], end='"'), max_bytes=80)
        # the claim comes last, so that it can follow from the quotation
        await force("\nSo" if quote.endswith('"') else '"\nSo')
        claim = await gen(regex=" [a-z][^\n.]{10,60}")
        await force(".\n")
        quotes.append([name, quote.rstrip('"')])
        answer += f'So{claim} [{name}: "{quotes[-1][1]}"].\n'

    # the user does not see the search and the passages
    await backtrack(start)
    await force(answer.rstrip())
    set_var("quotes", json.dumps(quotes))
    set_var("passages", json.dumps(passages))
