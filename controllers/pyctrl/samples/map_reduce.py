"""Map and reduce: forks summarize texts at the same time, then pairs of summaries, until one is left.

No fork sees more than one text, or two summaries, so the whole may be longer than the model's context.
Published methods (LLMxMapReduce, arXiv 2410.09342) also pass on reasons and confidence, to settle
contradictions between texts.

Prompt: What did the town decide?
Argument: ["The council met on Monday.", "The bridge is old.", "A new one is costly.", "They repair it."]
"""

from aici import arg, force, gather, gen, regex, set_var

SENTENCE = regex(r" [A-Z][^\n.]{10,80}\.")


def summarize(texts):
    async def write():
        await force("Text:\n" + "\n".join(texts) + "\nThe text in one sentence:")
        return (await gen(SENTENCE)).strip()

    return write


async def main():
    notes = await gather(*[summarize([text]) for text in arg])
    while len(notes) > 1:
        print(len(notes), "notes")
        pairs = [notes[i : i + 2] for i in range(0, len(notes), 2)]
        notes = await gather(*[summarize(pair) for pair in pairs])
    await force(notes[0])
    set_var("summary", notes[0])
