"""The fixed parts of a vocabulary image: header words, flags, alignment (docs/vocabulary.md)."""

from __future__ import annotations

from typing import Final

MAGIC: Final = 0x56434941
VERSION: Final = 1
#: the header, in words; unused ones are 0
HEADER_WORDS: Final = 32
#: every section starts at a multiple of this many bytes
ALIGNMENT: Final = 64
#: tokens longer than this are not in the trie: a node has 8 bits for its depth
MAX_TRIE_DEPTH: Final = 254
#: a node has 24 bits for a token and for the size of its subtree
NO_TOKEN: Final = 0xFFFFFF
#: value of bos, pad and unk if the tokenizer lacks the token
NONE: Final = 0xFFFFFFFF
#: words per trie node
NODE_WORDS: Final = 4

#: header word i holds the value named ``HEADER[i]``
HEADER: Final = (
    "magic",
    "version",
    "total_size",
    "vocab_size",
    "mask_words",
    "mask_stride",
    "num_nodes",
    "num_ordered",
    "num_eos",
    "num_duplicates",
    "num_long",
    "max_token_len",
    "num_classes",
    "bos",
    "pad",
    "unk",
    "nodes",
    "order",
    "class_masks",
    "text_mask",
    "token_offsets",
    "token_bytes",
    "flags",
    "eos",
    "byte_class",
    "duplicates",
    "long_tokens",
    "num_slices",
    "slices",
    "slice_masks",
    "turns",
    "num_turns",
)

#: most bytes of the section `turns`
MAX_TURNS: Final = 1 << 16

#: token flags
SPECIAL: Final = 1
EOS: Final = 2
UNUSED: Final = 4
