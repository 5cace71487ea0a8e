"""A numbered list of exactly five items.

Prompt: Name five fruits.
"""

from aici import fixed, gen, label, regex, rewind, set_var

# The blank before an item is the model's to write: most of its tokens begin with one (" Apple"), and after a
# blank that is fixed it could not use them.
ITEM = regex(" [A-Z][a-z]+( [a-z]+)?")


async def main():
    items = []
    for number in range(1, 6):
        # what is fixed costs no time of the model: only the items are written by it
        await fixed(f"{number}.")
        here = label()
        for temperature in (0, 0.7, 1, 1.5):
            item = await gen(ITEM, max_tokens=6, temperature=temperature)
            if item not in items:
                break
            # small models repeat themselves: take it back, and try once more with more courage
            await rewind(here)
        items.append(item)
        # after rewind there is nothing here, so the last try is put back in
        await fixed(item + "\n", after=here)
    # a variable goes to the caller beside the text, who then need not take the text apart
    set_var("items", ",".join(items).strip())
