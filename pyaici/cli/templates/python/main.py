# NAME: a controller in Python. It decides what the model writes, part by part.
from aici import argument, fixed, gen, options, regex, set_var

# The value of --arg, or two animals. Patterns at the top level are compiled before the first request.
ANIMALS = options(argument or ["cat", "dog"])
A_WORD = regex("[A-Z][a-z]{1,10}")


async def main():
    await fixed("Once upon a time there was a ")
    animal = await gen(ANIMALS)
    await fixed(" called ")
    name = await gen(A_WORD)
    set_var("name", name)
    print(name, "is a", animal)
    await fixed(". ")
    await gen(stop=".", include_stop=True, max_tokens=40)
