"""The model's confidence: the probability of its answer among the allowed answers.

Prompt: What is the mood of this sentence? "I love this film!" Answer with one word.
"""

import math

from aici import TokenSet, force, label, sample, set_var, tokenize

# the first token identifies a word if the words' first tokens differ, so one forward pass is enough
MOODS = {tokenize(mood)[0]: mood for mood in ("Positive", "Negative", "Neutral")}
FIRST = TokenSet(MOODS)


async def main():
    here = label()
    one = await sample(FIRST, top_logprobs=1)  # with top_logprobs, the engine also reports probabilities
    assert one.logprob is not None and one.allowed_mass is not None, "the engine reports no probabilities"
    # logprob is relative to all tokens; allowed_mass is the total probability of the allowed tokens
    share = math.exp(one.logprob) / one.allowed_mass
    await force(MOODS[one.token], after=here)  # the same as backtrack(here), then force
    set_var("share", f"{share:.2f}")
