//! Computes the set of tokens that a constraint on bytes allows, by a walk over the trie.

use crate::{Recognizer, Signature, SpecialToken, TokenId, TokenSet, Vocabulary};

/// The maximum depth of the trie; longer tokens are checked one by one.
const MAX_DEPTH: usize = 254;

impl Vocabulary {
    /// Returns the tokens that `recognizer` allows in its top state. Leaves its stack unchanged.
    pub fn compute_bias<R: Recognizer + ?Sized>(&self, recognizer: &mut R) -> TokenSet {
        let mut allowed = TokenSet::new();
        self.walk(recognizer, &mut allowed);
        for pair in self.duplicates().chunks_exact(2) {
            if allowed.allows(pair[1]) {
                allowed.allow(pair[0]);
            }
        }
        let fits = |token: &TokenId| fits(recognizer, self.token(*token));
        allowed.extend(self.long_tokens().iter().copied().filter(fits));
        for which in SpecialToken::ALL {
            if recognizer.special_allowed(which) {
                allowed.extend(self.special_tokens(which));
            }
        }
        recognizer.trie_finished();
        allowed
    }

    /// Adds the tokens of the trie. The nodes are in depth-first order, so the walk skips a subtree by its size,
    /// and the tokens of a subtree are a range of `order`.
    fn walk<R: Recognizer + ?Sized>(&self, recognizer: &mut R, allowed: &mut TokenSet) {
        let (nodes, order) = (self.nodes(), self.order());
        let mut free: [Signature; MAX_DEPTH + 1] = [0; MAX_DEPTH + 1];
        free[0] = recognizer.loop_signature();
        let mut pushed = 0;
        let mut at = 1; // the root has no edge
        while at < nodes.len() - 1 {
            let node = &nodes[at];
            let (depth, after) = (node.depth(), at + node.subtree_size());
            if node.signature & !free[depth - 1] == 0 {
                allowed.extend(&order[node.first()..nodes[after].first()]);
                at = after;
                continue;
            }
            if pushed >= depth {
                recognizer.pop_bytes(pushed - (depth - 1));
                pushed = depth - 1;
            }
            if !recognizer.try_push_byte(node.byte()) {
                at = after;
                continue;
            }
            pushed = depth;
            allowed.extend(node.token());
            if after > at + 1 {
                free[depth] = recognizer.loop_signature();
            }
            at += 1;
        }
        recognizer.pop_bytes(pushed);
    }
}

/// Returns whether all of `text` is allowed after the top state.
fn fits<R: Recognizer + ?Sized>(recognizer: &mut R, text: &[u8]) -> bool {
    let pushed = text.iter().take_while(|&&byte| recognizer.try_push_byte(byte)).count();
    recognizer.pop_bytes(pushed);
    pushed == text.len()
}
