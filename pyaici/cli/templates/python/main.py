# NAME: a controller in Python. It decides what the model writes, part by part.
from aici import arg, choice, force, gen, regex, set_var

# The value of --arg, or two animals. Patterns at the top level are compiled before the first request.
ANIMALS = choice(arg or ["cat", "dog"])
A_WORD = regex("[A-Z][a-z]{1,10}")


async def main():
    await force("Once upon a time there was a ")
    animal = await gen(ANIMALS)
    await force(" called ")
    name = await gen(A_WORD)
    set_var("name", name)
    print(name, "is a", animal)
    await force(". ")
    await gen(stop=".", include_stop=True, max_tokens=40)
