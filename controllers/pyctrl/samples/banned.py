"""Avoids certain words: as soon as one appears, the script removes it, and another word takes its place.

Prompt: Describe a nice day at the beach.
Argument: ["sun", "beach", "sand", "water", "waves"]
"""

from aici import TokenSet, arg, eos_tokens, generate, sample, token_bytes, tokens, vocab_size

WORDS = [" " + word for word in arg or ["very", "really"]]

SPELLED = [word.encode() for word in WORDS]  # a token may be a part of a character, so compare bytes

# All tokens except those with which one of the words begins. Checking the whole vocabulary takes a moment,
# but code at the top level runs once, for all requests.
OTHERS = TokenSet.text()
OTHERS.allow(eos_tokens())
for token in range(vocab_size()):
    piece = token_bytes(token)
    if piece and any(word.startswith(piece) or piece.startswith(word) for word in SPELLED):
        OTHERS.forbid(token)


async def main():
    length = 25
    while len(tokens()) < length:
        # a text with a stop string ends right before that string, even within a token
        out = await generate(stop=WORDS, max_tokens=length - len(tokens()), logprobs=False)
        if out.finish_reason != "stop":
            return
        # here the model wanted one of the words: sample another token, then let the model continue
        one = await sample(OTHERS)
        if one.token in eos_tokens():
            return
