//! The tokenizer's vocabulary: an image (docs/vocabulary.md of aici) that the host maps into memory.

use std::cell::Cell;

use crate::abi::{VocabularyHeader, VOCABULARY_MAGIC, VOCABULARY_VERSION};
use crate::{host, SpecialToken, TokenId};

const NONE: u32 = 0xffffffff;

/// Which kinds of bytes occur in some text: a bit for each class of ASCII bytes and two for all others.
pub type Signature = u32;

/// Both bits for the bytes from 0x80 on.
const NOT_ASCII: Signature = 3 << 30;

/// A node of the trie of all tokens. The nodes are in depth-first order.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TrieNode {
    token_byte: u32,
    size_depth: u32,
    /// Kinds of bytes on the edges into this node and below.
    pub signature: Signature,
    first_height: u32,
}

impl TrieNode {
    /// The token that ends here.
    pub fn token(&self) -> Option<TokenId> {
        let token = self.token_byte & 0xffffff;
        (token != 0xffffff).then_some(token)
    }
    /// The byte on the edge into this node.
    pub fn byte(&self) -> u8 {
        (self.token_byte >> 24) as u8
    }
    /// Number of nodes in the subtree, including this one.
    pub fn subtree_size(&self) -> usize {
        (self.size_depth & 0xffffff) as usize
    }
    pub fn depth(&self) -> usize {
        (self.size_depth >> 24) as usize
    }
    /// Number of tokens before this node.
    pub fn first(&self) -> usize {
        (self.first_height & 0xffffff) as usize
    }
}

/// A view of the vocabulary of this controller's model; cheap to copy.
#[derive(Clone, Copy)]
pub struct Vocabulary {
    image: &'static [u32],
}

/// Returns the vocabulary of this controller's model. The first call maps it.
pub fn vocabulary() -> Vocabulary {
    thread_local! {
        static MAPPED: Cell<Option<Vocabulary>> = const { Cell::new(None) };
    }
    MAPPED.get().unwrap_or_else(|| {
        let header = host::vocabulary_image();
        // The host keeps the image for as long as the instance lives, and its size is in it.
        let vocabulary = unsafe {
            if (*header).magic != VOCABULARY_MAGIC || (*header).version != VOCABULARY_VERSION {
                host::fail(
                    "the host's vocabulary image has another format than this controller's SDK: rebuild it",
                );
            }
            Vocabulary { image: std::slice::from_raw_parts(header.cast(), (*header).total_size as usize / 4) }
        };
        MAPPED.set(Some(vocabulary));
        vocabulary
    })
}

impl Vocabulary {
    /// Returns the number of token ids, including unused ids.
    pub fn vocab_size(&self) -> usize {
        self.header().vocab_size as usize
    }

    /// Returns the number of 32-bit words in a mask.
    pub fn mask_words(&self) -> usize {
        self.header().mask_words as usize
    }

    /// Returns the bytes of a token; for a special token, its name.
    ///
    /// # Panics
    /// If `token` is not below `vocab_size`.
    pub fn token(&self, token: TokenId) -> &'static [u8] {
        let offsets = self.words(self.header().token_offsets, self.header().vocab_size + 1);
        let bytes = self.bytes(self.header().token_bytes);
        &bytes[offsets[token as usize] as usize..offsets[token as usize + 1] as usize]
    }

    /// Returns the concatenated bytes of these tokens.
    pub fn decode(&self, tokens: &[TokenId]) -> Vec<u8> {
        tokens.iter().flat_map(|&token| self.token(token)).copied().collect()
    }

    /// Returns whether the token has no text.
    pub fn is_special(&self, token: TokenId) -> bool {
        self.bytes(self.header().flags)[token as usize] & 1 != 0
    }

    /// Returns whether the token ends the text.
    pub fn is_eos(&self, token: TokenId) -> bool {
        self.bytes(self.header().flags)[token as usize] & 2 != 0
    }

    /// Returns the end-of-sequence tokens; a model may have several.
    pub fn eos(&self) -> &'static [TokenId] {
        self.words(self.header().eos, self.header().num_eos)
    }

    /// Returns the id of a special token (the first one for `Eos`), if it exists.
    pub fn special_token(&self, which: SpecialToken) -> Option<TokenId> {
        let id = match which {
            SpecialToken::Eos => return self.eos().first().copied(),
            SpecialToken::Bos => self.header().bos,
            SpecialToken::Pad => self.header().pad,
            SpecialToken::Unk => self.header().unk,
        };
        (id != NONE).then_some(id)
    }

    /// Returns all ids of the special token `which`.
    pub(crate) fn special_tokens(&self, which: SpecialToken) -> Vec<TokenId> {
        match which {
            SpecialToken::Eos => self.eos().to_vec(),
            _ => self.special_token(which).into_iter().collect(),
        }
    }

    /// Returns the mask of all tokens with text.
    pub fn text_mask(&self) -> &'static [u32] {
        self.words(self.header().text_mask, self.header().mask_words)
    }

    /// Returns the kinds of bytes all of which satisfy `stays`. This is a valid `loop_signature` for a state in which
    /// every such byte is allowed and does not change the state.
    pub fn kinds(&self, stays: impl Fn(u8) -> bool) -> Signature {
        let class_of = &self.bytes(self.header().byte_class)[..128];
        let (mut has, mut leaves) = (0, 0);
        for (byte, &class) in (0..128u8).zip(class_of) {
            has |= 1 << class;
            leaves |= u32::from(!stays(byte)) << class;
        }
        let other = if (0x80..=0xff).all(stays) { NOT_ASCII } else { 0 };
        (has & !leaves) | other
    }

    /// The nodes of the trie, the root first.
    pub(crate) fn nodes(&self) -> &'static [TrieNode] {
        let count = self.header().num_nodes + 1; // a sentinel closes them
        let words = self.words(self.header().nodes, 4 * count);
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), count as usize) }
    }

    /// The tokens in the order of their nodes.
    pub(crate) fn order(&self) -> &'static [TokenId] {
        self.words(self.header().order, self.header().num_ordered)
    }

    /// Returns pairs of tokens with the same bytes: a token without a node, and the token with the node.
    pub(crate) fn duplicates(&self) -> &'static [u32] {
        self.words(self.header().duplicates, 2 * self.header().num_duplicates)
    }

    /// Tokens that are too long for the trie.
    pub(crate) fn long_tokens(&self) -> &'static [TokenId] {
        self.words(self.header().long_tokens, self.header().num_long)
    }

    fn header(&self) -> &'static VocabularyHeader {
        unsafe { &*self.image.as_ptr().cast() }
    }

    /// `count` words from this offset on.
    fn words(&self, offset: u32, count: u32) -> &'static [u32] {
        &self.image[offset as usize / 4..][..count as usize]
    }

    /// From this offset to the end of the image.
    fn bytes(&self, offset: u32) -> &'static [u8] {
        let rest = &self.image[offset as usize / 4..];
        // any u32 is four bytes, in the order of the image on a little-endian machine
        unsafe { std::slice::from_raw_parts(rest.as_ptr().cast(), 4 * rest.len()) }
    }
}
