"""Two lines of verse: the second has three to six words and rhymes with the animal in the first.

Prompt: Write a short funny poem about an animal.
"""

from aici import choice, force, gen, regex, set_var

RHYMES = {"cat": ["hat", "mat", "bat"], "dog": ["log", "frog", "fog"], "mouse": ["house", "blouse"]}
ANIMAL = choice([f" {animal}" for animal in RHYMES])
# a pattern enforces the number of words, which a prompt hardly does
LINES = {
    animal: regex("[A-Z][a-z]{1,8}( [a-z]{1,9}){1,4} (" + "|".join(rhymes) + r")\.")
    for animal, rhymes in RHYMES.items()
}


async def main():
    await force("There was a little")
    animal = (await gen(ANIMAL)).strip()
    await force(",\n")
    # the choice in the first line decides which second lines are allowed
    line = await gen(LINES[animal], max_tokens=20)
    set_var("rhyme", line.rstrip(".").split(" ")[-1])
