//! NAME: the model writes without the letters of the argument ("e", if there is none).
//!
//! Try: aici run NAME.wasm --prompt "Tell me a story" --arg aeiou

use std::rc::Rc;

use aici::{AiciCtrl, MidResult, SeqId, TokenSet};

struct Lipogram {
    allowed: Rc<TokenSet>,
}

impl Lipogram {
    /// Once per argument, before there is a prompt. A fork copies the value, so every sequence has its own.
    fn new(arg: &[u8]) -> Result<Self, String> {
        let letters = if arg.is_empty() { b"e" } else { arg };
        let words = aici::vocabulary();
        let mut allowed: TokenSet =
            TokenSet::text().iter().filter(|&token| !has_one_of(words.token(token), letters)).collect();
        if allowed.is_empty() {
            return Err("no token is left without these letters".into());
        }
        allowed.extend(words.eos()); // the text may end anywhere
        aici::log!("{} of {} tokens are allowed", allowed.len(), words.vocab_size());
        Ok(Self { allowed: Rc::new(allowed) })
    }
}

impl AiciCtrl for Lipogram {
    /// Once per token, while the model computes the logits for the next one.
    fn mid_process(&mut self, _fork_group: &[SeqId]) -> MidResult {
        MidResult::sample(&self.allowed)
    }
}

// The host calls what is named here; pre_process and post_process would keep the model waiting.
aici::export!(Lipogram::new, mid_process);

fn has_one_of(text: &[u8], letters: &[u8]) -> bool {
    text.iter().any(|byte| letters.iter().any(|letter| byte.eq_ignore_ascii_case(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_found_in_either_case() {
        assert!(has_one_of(b" Eve", b"e"));
        assert!(has_one_of(b"eve", b"xV"));
        assert!(!has_one_of("Ärger".as_bytes(), b"u"));
    }
}
