"""A text without the letter e, written with the callbacks that compiled controllers have.

Prompt: Tell me a story.
"""

from aici import Sample, TokenSet, eos_tokens, token_bytes, vocab_size

ALLOWED = TokenSet.text()
ALLOWED.forbid([token for token in range(vocab_size()) if b"e" in token_bytes(token).lower()])
ALLOWED.allow(eos_tokens())


# Without main, a script has callbacks. This one is called for every token, while the model computes, and
# returns the allowed tokens.
def mid_process(step):
    return Sample(ALLOWED)
