"""How sure the model is: the probability of the answer among those that it may choose from.

Prompt: What is the mood of this sentence? "I love this film!" Answer with one word.
"""

import math

from aici import TokenSet, fixed, label, sample, set_var, tokenize

# a word is told by its first token, if these differ: one pass of the model is enough
MOODS = {tokenize(mood)[0]: mood for mood in ("Positive", "Negative", "Neutral")}
FIRST = TokenSet(MOODS)


async def main():
    here = label()
    one = await sample(FIRST, top=1)  # with top, the engine tells probabilities, too
    # logprob is of all tokens that there are, allowed_mass the probability of all that were allowed
    share = math.exp(one.logprob) / one.allowed_mass
    await fixed(MOODS[one.token], after=here)  # the same as rewind(here) and then fixed
    set_var("share", f"{share:.2f}")
