//! Makes a controller from a recognizer.

use crate::{step, vocabulary, AiciCtrl, MidResult, Recognizer, SeqId, SpecialToken, TokenId};

/// Restricts the whole output to a recognizer: every token is sampled under its masks, and the sequence stops where
/// nothing can follow. Export only its `mid_process`.
pub struct AiciRecognizer<R: Recognizer> {
    recognizer: R,
    ended: bool,
}

impl<R: Recognizer> AiciRecognizer<R> {
    pub fn new(recognizer: R) -> Self {
        vocabulary(); // mapped here, before there is a sequence that would wait for it
        Self { recognizer, ended: false }
    }

    /// Follows appended tokens.
    ///
    /// # Panics
    /// If one of them is not allowed.
    pub fn append(&mut self, tokens: &[TokenId]) {
        let words = vocabulary();
        for &token in tokens {
            let text = words.token(token);
            let allowed = if words.is_special(token) {
                self.append_special(token)
            } else {
                !self.ended && text.iter().all(|&byte| self.recognizer.try_push_byte(byte))
            };
            let shown = String::from_utf8_lossy(text);
            assert!(allowed, "the token \"{shown}\" was appended, but the constraint does not allow it here");
            self.recognizer.collapse();
        }
    }

    fn append_special(&mut self, token: TokenId) -> bool {
        let words = vocabulary();
        self.ended |= words.is_eos(token);
        let means = |which: &SpecialToken| words.special_tokens(*which).contains(&token);
        SpecialToken::ALL
            .iter()
            .filter(|which| means(which))
            .any(|&which| self.recognizer.special_allowed(which))
    }

    /// Returns the allowed tokens, or the end.
    pub fn answer(&mut self) -> MidResult {
        if self.ended {
            return MidResult::Stop;
        }
        let allowed = vocabulary().compute_bias(&mut self.recognizer);
        if !allowed.has_text() && self.recognizer.special_allowed(SpecialToken::Eos) {
            return MidResult::Stop;
        }
        assert!(
            !allowed.is_empty(),
            "the constraint allows no token here: it cannot end, and no token of the vocabulary continues it"
        );
        MidResult::sample(allowed)
    }
}

impl<R: Recognizer> AiciCtrl for AiciRecognizer<R> {
    fn mid_process(&mut self, _fork_group: &[SeqId]) -> MidResult {
        let step = step();
        assert!(step.backtrack() == 0, "tokens were backtracked, which this controller does not support");
        self.append(&step.tokens());
        self.answer()
    }
}
