"""A vocabulary that a person can keep in mind: all bytes, some longer tokens, two special ones."""

from __future__ import annotations

from pyaici.tokens import TokenizerBlob, Vocabulary

_WORDS = [
    *("the", "a", "an", "and", "or", "of", "to", "in", "on", "at", "is", "it", "was"),
    *("that", "with", "for", "not", "you", "he", "she", "cat", "dog", "mat", "sat", "end", "yes"),
    *("no", "Yes", "No", "The", "It", "He", "I", "name", "age", "one", "two", "three"),
]
#: the same words as models have them: most often with the space before them
_LONGER = [
    *_WORDS,
    *(" " + word for word in _WORDS),
    *("th", "er", "ed", "es", "ing", "ly", "ck", "ll", "oo", "qu"),
    *("10", "19", "20", "00", "000", "  ", "    ", "\n\n", ", ", ". ", '"', '": "', '{"', '"}', "é", "—"),
]


def small_vocabulary() -> Vocabulary:
    """Tokens 0 to 255 are the bytes; then come common words and pieces; the last two are <s> and </s>.

    Text is tokenized by longest match.
    """
    longer = list(dict.fromkeys(text.encode() for text in _LONGER if len(text.encode()) > 1))
    tokens = [bytes([byte]) for byte in range(256)] + longer + [b"", b""]
    begin, end = len(tokens) - 2, len(tokens) - 1
    return Vocabulary(
        tokens,
        {begin: "<s>", end: "</s>"},
        eos=(end,),
        bos=begin,
        name="small",
        tokenizer=TokenizerBlob("longest"),
    )
