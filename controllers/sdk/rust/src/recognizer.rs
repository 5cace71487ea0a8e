//! Constraints on text: the byte stack interface, the functional interface, and what makes one of the other.

use crate::{Signature, SpecialToken};

/// A constraint as a stack of states, asked byte by byte.
///
/// `Vocabulary::compute_bias` goes through all tokens at once with it: it pushes the bytes that lead down the
/// tree of tokens and pops those that lead back up. Where a state is a small value, implement
/// `FunctionalRecognizer` instead: it is less work.
pub trait Recognizer {
    /// If the top state goes by `byte` to X: push X. Called only where `byte` is allowed.
    fn push_byte(&mut self, byte: u8);

    /// Pop `num` states.
    fn pop_bytes(&mut self, num: usize);

    /// Drop all states below the top: the bytes that were pushed are final now.
    fn collapse(&mut self);

    /// Does the top state go by `byte` to one from which a match can be reached?
    fn byte_allowed(&mut self, byte: u8) -> bool;

    /// The same for a special token; `Eos`: may the text end here?
    fn special_allowed(&mut self, token: SpecialToken) -> bool;

    /// A walk over the tokens is over; the stack is as high as when it began.
    fn trie_finished(&mut self) {}

    /// `byte_allowed` and `push_byte` in one.
    fn try_push_byte(&mut self, byte: u8) -> bool {
        let allowed = self.byte_allowed(byte);
        if allowed {
            self.push_byte(byte);
        }
        allowed
    }

    /// Kinds of bytes of which every text, of any length and in any order, is allowed after the top state;
    /// whole branches of the tree of tokens are taken then without a look. 0, the default, is always right.
    fn loop_signature(&mut self) -> Signature {
        0
    }
}

/// A constraint as functions of a state that is a small value.
pub trait FunctionalRecognizer<S: Copy> {
    /// The state before the first byte.
    fn initial(&self) -> S;

    /// The state after `byte`, which is allowed.
    fn append(&self, state: S, byte: u8) -> S;

    /// May `byte` come in `state`?
    fn byte_allowed(&self, state: S, byte: u8) -> bool;

    /// May this special token come in `state`? `Eos`: may the text end here?
    fn special_allowed(&self, state: S, token: SpecialToken) -> bool;

    /// As `Recognizer::loop_signature`, of `state`. For states that no byte of some kinds changes,
    /// `Vocabulary::kinds` finds it.
    fn loop_signature(&self, _state: S) -> Signature {
        0
    }

    /// Is this text, from the first byte to its end, what the constraint wants? For tests.
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

/// Makes a byte stack of a functional recognizer.
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

    /// The present state.
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
