"""A record in JSON, in which one field is computed from another.

Prompt: Describe a famous scientist of the 19th century.
"""

import json

from aici import force, gen, regex, set_var, text

# a JSON string without escapes, which is enough for a name; the quotation marks are fixed
NAME = regex("[A-Z][A-Za-z .]{2,30}")
YEAR = regex("1[78][0-9]{2}")


async def main():
    await force('{"name": "')
    await gen(NAME)
    await force('", "born": ')
    born = int(await gen(YEAR))
    # models know names but are bad at arithmetic, so the script computes the century
    await force(f', "century": {(born - 1) // 100 + 1}}}')
    set_var("record", json.dumps(json.loads(text())))
