//! A set of tokens as a bit mask, in the format of the host.

use std::ops::{BitAndAssign, BitOrAssign, SubAssign};

use crate::{vocabulary, TokenId};

/// One bit per token of the vocabulary: 16 KiB for 131 072 tokens. Keep sets in an `Rc` and reuse them instead of
/// creating new ones in each step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSet {
    words: Vec<u32>,
}

impl TokenSet {
    /// The empty set.
    pub fn new() -> Self {
        Self { words: vec![0; vocabulary().mask_words()] }
    }

    /// Every token id of the vocabulary, including special tokens.
    pub fn all() -> Self {
        (0..vocabulary().vocab_size() as TokenId).collect()
    }

    /// Every token with text.
    pub fn text() -> Self {
        Self { words: vocabulary().text_mask().to_vec() }
    }

    /// # Panics
    /// This and the next two panic if `token` is not in the vocabulary.
    pub fn allow(&mut self, token: TokenId) {
        self.words[token as usize / 32] |= 1 << (token % 32);
    }

    pub fn forbid(&mut self, token: TokenId) {
        self.words[token as usize / 32] &= !(1 << (token % 32));
    }

    pub fn allows(&self, token: TokenId) -> bool {
        self.words[token as usize / 32] >> (token % 32) & 1 != 0
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Returns whether the set has a token with text.
    pub fn has_text(&self) -> bool {
        self.words.iter().zip(vocabulary().text_mask()).any(|(word, text)| word & text != 0)
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The tokens, in order.
    pub fn iter(&self) -> impl Iterator<Item = TokenId> + '_ {
        let bits = |word: u32| (0..32).filter(move |bit| word >> bit & 1 != 0);
        self.words.iter().zip(0..).flat_map(move |(&word, i)| bits(word).map(move |bit| 32 * i + bit))
    }

    /// The mask.
    pub fn words(&self) -> &[u32] {
        &self.words
    }
}

impl Default for TokenSet {
    fn default() -> Self {
        Self::new()
    }
}

impl Extend<TokenId> for TokenSet {
    fn extend<I: IntoIterator<Item = TokenId>>(&mut self, tokens: I) {
        tokens.into_iter().for_each(|token| self.allow(token));
    }
}

impl<'a> Extend<&'a TokenId> for TokenSet {
    fn extend<I: IntoIterator<Item = &'a TokenId>>(&mut self, tokens: I) {
        self.extend(tokens.into_iter().copied());
    }
}

impl FromIterator<TokenId> for TokenSet {
    fn from_iter<I: IntoIterator<Item = TokenId>>(tokens: I) -> Self {
        let mut set = Self::new();
        set.extend(tokens);
        set
    }
}

impl BitOrAssign<&TokenSet> for TokenSet {
    fn bitor_assign(&mut self, other: &TokenSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a |= b);
    }
}

impl BitAndAssign<&TokenSet> for TokenSet {
    fn bitand_assign(&mut self, other: &TokenSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= b);
    }
}

impl SubAssign<&TokenSet> for TokenSet {
    fn sub_assign(&mut self, other: &TokenSet) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a &= !b);
    }
}
