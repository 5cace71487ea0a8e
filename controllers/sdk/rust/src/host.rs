//! The services of the runtime: the tokenizer, variables, the log, errors, the end.
//!
//! Outside WebAssembly, in `cargo test`, there is no runtime: `log` prints, `fail` and `stop` panic, and the other
//! functions panic with a message. Recognizers need none of them.

use crate::{abi, TokenId};

#[cfg(not(target_arch = "wasm32"))]
use crate::native as imports;
#[cfg(target_arch = "wasm32")]
use abi as imports;

/// Tokenizes these bytes with the model's tokenizer; bytes that are not UTF-8 become byte tokens. Returns `None` if
/// the vocabulary cannot spell them.
pub fn tokenize(text: impl AsRef<[u8]>) -> Option<Vec<TokenId>> {
    let text = text.as_ref();
    match unsafe { imports::tokenize(text.as_ptr(), text.len() as u32) } {
        abi::NO_TOKENS => None,
        count => Some(read_words(abi::TOKENIZED, count)),
    }
}

/// A capability of the engine; see `capability`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    Fork = abi::CAP_FORK,
    Backtrack = abi::CAP_BACKTRACK,
    FfTokens = abi::CAP_FF_TOKENS,
    Suspend = abi::CAP_SUSPEND,
    Logprobs = abi::CAP_LOGPROBS,
    /// The maximum number of most likely tokens in an answer.
    TopLogprobs = abi::CAP_TOP_LOGPROBS,
    /// Whether the engine supports rows of biases.
    Dense = abi::CAP_DENSE,
    /// Whether `tokenize` is the model's own tokenizer.
    Tokenizer = abi::CAP_TOKENIZER,
    /// The maximum number of live sequences of a request.
    MaxForks = abi::CAP_MAX_FORKS,
    /// Whether `MidResult::holding_end` has an effect.
    HoldEnd = abi::CAP_HOLD_END,
    /// Whether somebody answers calls of this request.
    Calls = abi::CAP_CALLS,
    /// What `MidResult::Look` shows: 0 nothing, 1 the most likely tokens, 2 also all logits.
    Look = abi::CAP_LOOK,
    /// Whether `MidResult::Follow` is supported.
    Follow = abi::CAP_FOLLOW,
    /// The most drafts of a result (`MidResult::with_drafts`).
    Drafts = abi::CAP_DRAFTS,
}

/// Returns the value of a capability: 1 or 0 for most, a number for `TopLogprobs` and `MaxForks`.
pub fn capability(which: Capability) -> u32 {
    unsafe { imports::capability(which as u32) }
}

/// Makes a call with arguments in JSON; returns the name of the variable that will have the answer (`variables`).
pub fn call(name: &str, arguments: &str) -> String {
    let (name_len, arguments_len) = (name.len() as u32, arguments.len() as u32);
    let number = unsafe { imports::call(name.as_ptr(), name_len, arguments.as_ptr(), arguments_len) };
    format!("aici.call.{number}")
}

/// Ends the sequence at once.
pub fn stop() -> ! {
    unsafe { imports::stop() }
}

/// Ends the sequence with an error with this message. A panic does the same.
pub fn fail(message: &str) -> ! {
    unsafe { imports::fail(message.as_ptr(), message.len() as u32) }
}

/// Writes to the log that the user sees. `aici::log!` formats like `println!`.
pub fn log(text: &str) {
    let mut written = 0;
    unsafe { imports::fd_write(1, &[text.as_ptr() as usize, text.len()], 1, &mut written) };
}

/// Writes a line to the log that the user sees.
#[macro_export]
macro_rules! log {
    ($($arg:tt)*) => { $crate::log(&(::std::format!($($arg)*) + "\n")) };
}

/// Variables, which all forks of a request share. Each write raises the version of a variable by one.
pub mod variables {
    use super::{abi, imports};

    /// Returns the value, if the variable exists.
    pub fn get(name: &str) -> Option<Vec<u8>> {
        let (value, version) = get_versioned(name);
        (version != 0).then_some(value)
    }

    /// Returns the value and its version; an empty value and 0 if the variable does not exist.
    pub fn get_versioned(name: &str) -> (Vec<u8>, u32) {
        let mut len = 0;
        let version = unsafe { imports::var_get(name.as_ptr(), name.len() as u32, &mut len) };
        let value = if version == 0 { Vec::new() } else { super::read_bytes(abi::VALUE, len) };
        (value, version)
    }

    /// Returns the new version.
    pub fn set(name: &str, value: impl AsRef<[u8]>) -> u32 {
        write(name, value.as_ref(), abi::SET, abi::ANY_VERSION)
    }

    /// Appends to the value and returns the new version.
    pub fn append(name: &str, value: impl AsRef<[u8]>) -> u32 {
        write(name, value.as_ref(), abi::APPEND, abi::ANY_VERSION)
    }

    /// Sets the value if it has this version (0: if the variable does not exist). Returns whether it was set.
    pub fn set_if(name: &str, value: impl AsRef<[u8]>, version: u32) -> bool {
        write(name, value.as_ref(), abi::SET, version) != 0
    }

    fn write(name: &str, value: &[u8], op: u32, version: u32) -> u32 {
        let (name_len, value_len) = (name.len() as u32, value.len() as u32);
        unsafe { imports::var_write(name.as_ptr(), name_len, value.as_ptr(), value_len, op, version) }
    }
}

pub(crate) fn vocabulary_image() -> *const abi::VocabularyHeader {
    unsafe { imports::vocabulary() }
}

/// `len` bytes of one of the host's lists.
pub(crate) fn read_bytes(source: u32, len: u32) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    unsafe { imports::read(source, 0, bytes.as_mut_ptr(), len) };
    bytes
}

/// A list of `count` words.
pub(crate) fn read_words(source: u32, count: u32) -> Vec<u32> {
    let mut words = vec![0u32; count as usize];
    unsafe { imports::read(source, 0, words.as_mut_ptr().cast(), 4 * count) };
    words
}

/// The most likely tokens of the last distribution.
pub(crate) fn read_logits(count: u32) -> Vec<f32> {
    let mut logits = vec![0.0; count as usize];
    unsafe { imports::read(abi::LOGITS, 0, logits.as_mut_ptr().cast(), 4 * count) };
    logits
}

pub(crate) fn read_top(count: u32) -> Vec<abi::Top> {
    let mut top = vec![abi::Top { token: 0, logprob: 0.0 }; count as usize];
    unsafe { imports::read(abi::TOP, 0, top.as_mut_ptr().cast(), 8 * count) };
    top
}
