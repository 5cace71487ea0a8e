//! Constraints on text: the byte stack interface, the functional interface, and the conversion between them.

use crate::{Signature, SpecialToken};

/// A constraint as a stack of states, byte by byte.
///
/// `Vocabulary::compute_bias` visits all tokens with it: it pushes a byte on the way down the trie and pops it on the
/// way up. If a state is a small value, implement `FunctionalRecognizer` instead, which is simpler.
pub trait Recognizer {
    /// Pushes the state after the top state and `byte`. Called only if `byte` is allowed.
    fn push_byte(&mut self, byte: u8);

    /// Pops `num` states.
    fn pop_bytes(&mut self, num: usize);

    /// Drops all states below the top: the pushed bytes are final.
    fn collapse(&mut self);

    /// Returns whether a match can be reached after `byte`.
    fn byte_allowed(&mut self, byte: u8) -> bool;

    /// Returns whether a special token is allowed; for `Eos`, whether the text may end here.
    fn special_allowed(&mut self, token: SpecialToken) -> bool;

    /// Called when a walk over the tokens has ended; the stack is as high as at its start.
    fn trie_finished(&mut self) {}

    /// Calls `byte_allowed` and, if so, `push_byte`.
    fn try_push_byte(&mut self, byte: u8) -> bool {
        let allowed = self.byte_allowed(byte);
        if allowed {
            self.push_byte(byte);
        }
        allowed
    }

    /// Returns kinds of bytes such that every text of these kinds is allowed after the top state. The walk then takes
    /// subtrees of the trie as a whole. 0, the default, is always correct.
    fn loop_signature(&mut self) -> Signature {
        0
    }
}

/// A constraint as functions of a state, which is a small value.
pub trait FunctionalRecognizer<S: Copy> {
    /// Returns the state before the first byte.
    fn initial(&self) -> S;

    /// Returns the state after `byte`, which must be allowed.
    fn append(&self, state: S, byte: u8) -> S;

    /// Returns whether `byte` is allowed in `state`.
    fn byte_allowed(&self, state: S, byte: u8) -> bool;

    /// Returns whether a special token is allowed in `state`; for `Eos`, whether the text may end here.
    fn special_allowed(&self, state: S, token: SpecialToken) -> bool;

    /// As `Recognizer::loop_signature`, for `state`. For states that bytes of some kinds do not change,
    /// `Vocabulary::kinds` computes it.
    fn loop_signature(&self, _state: S) -> Signature {
        0
    }

    /// Returns whether the constraint accepts the whole text. For tests.
    fn accepts(&self, text: impl AsRef<[u8]>) -> bool
    where
        Self: Sized,
    {
        let mut state = self.initial();
        for &byte in text.as_ref() {
            if !self.byte_allowed(state, byte) {
                return false;
            }
            state = self.append(state, byte);
        }
        self.special_allowed(state, SpecialToken::Eos)
    }
}

/// A byte stack made from a functional recognizer.
pub struct StackRecognizer<S: Copy, R: FunctionalRecognizer<S>> {
    recognizer: R,
    /// Never empty.
    stack: Vec<S>,
}

impl<S: Copy, R: FunctionalRecognizer<S>> StackRecognizer<S, R> {
    pub fn new(recognizer: R) -> Self {
        let stack = vec![recognizer.initial()];
        Self { recognizer, stack }
    }

    /// Returns the current state.
    pub fn top(&self) -> S {
        self.stack[self.stack.len() - 1]
    }
}

impl<S: Copy, R: FunctionalRecognizer<S>> From<R> for StackRecognizer<S, R> {
    fn from(recognizer: R) -> Self {
        Self::new(recognizer)
    }
}

impl<S: Copy, R: FunctionalRecognizer<S>> Recognizer for StackRecognizer<S, R> {
    fn push_byte(&mut self, byte: u8) {
        self.stack.push(self.recognizer.append(self.top(), byte));
    }

    fn pop_bytes(&mut self, num: usize) {
        self.stack.truncate(self.stack.len() - num);
    }

    fn collapse(&mut self) {
        self.stack.drain(..self.stack.len() - 1);
    }

    fn byte_allowed(&mut self, byte: u8) -> bool {
        self.recognizer.byte_allowed(self.top(), byte)
    }

    fn special_allowed(&mut self, token: SpecialToken) -> bool {
        self.recognizer.special_allowed(self.top(), token)
    }

    fn loop_signature(&mut self) -> Signature {
        self.recognizer.loop_signature(self.top())
    }
}
