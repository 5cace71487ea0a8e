"""Quotes from a document, word for word: nothing that is not in it can be written.

Prompt: When did the bridge open, and who built it?
Argument: The old bridge was built by Anna Lind. It opened in 1932. Boats pass below it every day.
"""

from aici import argument, fixed, gen, label, substring

# The document is the script's argument, so it is read once for all requests about it. The quotation mark at
# the end means: the model may close the quotation wherever it likes.
QUOTE = substring(argument, end='"')


async def main():
    start = label()
    # the model has to see the document, the reader does not
    await fixed(f'The document says: {argument}\n\nThe part that answers the question: "')
    quotation = await gen(QUOTE, max_tokens=24)
    await fixed(f'The document says: "{quotation}', after=start)
    if not quotation.endswith('"'):
        await fixed('"')
