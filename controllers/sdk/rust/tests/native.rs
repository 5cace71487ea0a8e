//! Tests without WebAssembly: recognizers, and the walk over a given vocabulary.

use aici::{FunctionalRecognizer, Recognizer, SpecialToken, StackRecognizer, TokenId, TokenSet};

/// Words of at most four letters, separated by one space.
struct ShortWords;

impl FunctionalRecognizer<u8> for ShortWords {
    fn initial(&self) -> u8 {
        0
    }
    fn append(&self, letters: u8, byte: u8) -> u8 {
        if byte == b' ' {
            0
        } else {
            letters + 1
        }
    }
    fn byte_allowed(&self, letters: u8, byte: u8) -> bool {
        if byte == b' ' {
            letters > 0
        } else {
            byte.is_ascii_alphabetic() && letters < 4
        }
    }
    fn special_allowed(&self, letters: u8, token: SpecialToken) -> bool {
        token == SpecialToken::Eos && letters > 0
    }
}

#[test]
fn texts_are_accepted_or_not() {
    assert!(ShortWords.accepts("to be or not"));
    for text in ["", "to  be", "to ", "maybe", "to-be"] {
        assert!(!ShortWords.accepts(text), "{text:?}");
    }
}

#[test]
fn a_stack_goes_back_and_forth() {
    let mut stack = StackRecognizer::new(ShortWords);
    assert!("word".bytes().all(|byte| stack.try_push_byte(byte)));
    assert!(!stack.try_push_byte(b's'));
    assert_eq!(stack.top(), 4);
    stack.pop_bytes(2);
    assert_eq!(stack.top(), 2);
    stack.collapse();
    assert!(stack.try_push_byte(b'x'));
    stack.pop_bytes(1);
    assert_eq!(stack.top(), 2);
    assert!(stack.special_allowed(SpecialToken::Eos));
    assert!(!stack.special_allowed(SpecialToken::Bos));
}

/// AICI_VOCABULARY names the file of a vocabulary image. tests/controllers/sdk/test_rust.py sets it.
#[test]
#[ignore = "needs a vocabulary image"]
fn masks_are_those_of_a_look_at_each_token() {
    let path = std::env::var("AICI_VOCABULARY").expect("AICI_VOCABULARY names a vocabulary image");
    aici::testing::use_vocabulary(&std::fs::read(path).expect("a file"));
    let words = aici::vocabulary();
    let ids = 0..words.vocab_size() as TokenId;

    let mut stack = StackRecognizer::new(ShortWords);
    stack.push_byte(b'a');
    let fits = |token: &TokenId| {
        let mut text = b"a".to_vec();
        text.extend(words.token(*token));
        text.push(b'.'); // a byte that is not allowed follows
        let allowed = (1..text.len()).take_while(|&end| ShortWords.accepts(trimmed(&text[..end]))).count();
        allowed == text.len() - 1 && !text.windows(2).any(|pair| pair == b"  ")
    };
    let text: TokenSet = TokenSet::text().iter().filter(fits).collect();
    let mut expected = text.clone();
    expected.extend(words.eos());
    let found = words.compute_bias(&mut stack);
    assert_eq!(found.iter().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    assert!(text.len() > 10 && found.has_text() && !text.is_empty());
    assert_eq!(stack.top(), 1, "the stack is as before");

    let mut rest = TokenSet::all();
    rest -= &found;
    assert_eq!(rest.len() + found.len(), ids.len());
    rest &= &found;
    assert!(rest.is_empty());
    rest |= &found;
    assert_eq!(rest, found);
    assert!(ids.filter(|&token| words.is_eos(token)).all(|token| found.allows(token)));
}

/// Removes a space at the end, after which a word may still follow.
fn trimmed(text: &[u8]) -> &[u8] {
    text.strip_suffix(b" ").unwrap_or(text)
}

#[test]
#[should_panic(expected = "the reason")]
fn fail_panics() {
    aici::log!("printed, {} by {}", "word", "word");
    aici::fail("the reason");
}

#[test]
#[should_panic(expected = "outside the runtime there is no vocabulary")]
fn what_is_missing_says_so() {
    aici::vocabulary();
}
