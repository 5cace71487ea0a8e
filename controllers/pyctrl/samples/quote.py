"""Quotes from a document verbatim: only text that occurs in the document can be written.

Prompt: When did the bridge open, and who built it?
Argument: The old bridge was built by Anna Lind. It opened in 1932. Boats pass below it every day.
"""

from aici import arg, force, gen, label, substring

# The document is the script's argument, so it is read once for all requests about it. The model may write
# the quotation mark, which ends the quotation, at any place.
QUOTE = substring(arg, end='"')


async def main():
    start = label()
    # the model needs the document, but the user does not
    await force(f'The document says: {arg}\n\nThe part that answers the question: "')
    quotation = await gen(QUOTE, max_tokens=24)
    await force(f'The document says: "{quotation}', after=start)
    if not quotation.endswith('"'):
        await force('"')
