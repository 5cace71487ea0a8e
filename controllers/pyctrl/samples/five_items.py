"""A numbered list of exactly five items.

Prompt: Name five fruits.
"""

from aici import backtrack, force, gen, label, regex, set_var

# The model writes the space before an item, since most of its tokens begin with one (" Apple"). After a
# fixed space it could not use those tokens.
ITEM = regex(" [A-Z][a-z]+( [a-z]+)?")


async def main():
    items = []
    for number in range(1, 6):
        # fixed text takes no time of the model, which writes only the items
        await force(f"{number}.")
        here = label()
        for temperature in (0, 0.7, 1, 1.5):
            item = await gen(ITEM, max_tokens=6, temperature=temperature)
            if item not in items:
                break
            # small models repeat themselves: remove the item, and try again at a higher temperature
            await backtrack(here)
        items.append(item)
        # after backtrack the item is gone, so write the last attempt again
        await force(item + "\n", after=here)
    # the caller gets the variable in addition to the text, and need not parse the text
    set_var("items", ",".join(items).strip())
