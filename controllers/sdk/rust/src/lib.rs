//! Controllers for AICI: programs that steer a language model token by token, compiled to WebAssembly.
//!
//! ```
//! use aici::{AiciCtrl, MidResult, SeqId};
//!
//! struct Free;
//!
//! impl AiciCtrl for Free {
//!     fn mid_process(&mut self, _fork_group: &[SeqId]) -> MidResult {
//!         MidResult::sample_any()
//!     }
//! }
//!
//! aici::export!(|_arg: &[u8]| Ok::<_, String>(Free), mid_process);
//! ```
//!
//! Three layers: a controller (`AiciCtrl`) says what may come; a byte stack (`Recognizer`) says it of text
//! instead of tokens, and `AiciRecognizer` makes a controller of it; a `FunctionalRecognizer` says it as
//! functions of a small state, and `StackRecognizer` makes a byte stack of that. Functional recognizers are
//! tested by `cargo test`, without WebAssembly; controllers by `pyaici.testing.Playground`, in the runtime.

pub mod abi;
mod bias;
mod controller;
#[doc(hidden)]
pub mod glue;
mod host;
#[cfg(not(target_arch = "wasm32"))]
mod native;
mod recognizer;
mod recognizer_controller;
mod step;
mod token_set;
mod vocabulary;

pub use abi::{Bias, Top, GREEDY};
pub use controller::{AiciCtrl, MidResult, PostResult, PreResult, Row, Sample};
pub use host::{capability, fail, log, stop, tokenize, variables, Capability};
pub use recognizer::{FunctionalRecognizer, Recognizer, StackRecognizer};
pub use recognizer_controller::AiciRecognizer;
pub use step::{self_seq_id, step, Step};
pub use token_set::TokenSet;
pub use vocabulary::{vocabulary, Signature, Vocabulary};

/// For `cargo test`, where there is no runtime.
#[cfg(not(target_arch = "wasm32"))]
pub mod testing {
    pub use crate::native::use_vocabulary;
}

pub type TokenId = u32;
pub type SeqId = u32;

/// Tokens that are no text. A vocabulary may have several end-of-sequence tokens; `Eos` means all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialToken {
    Eos,
    Bos,
    Pad,
    Unk,
}

impl SpecialToken {
    pub const ALL: [SpecialToken; 4] =
        [SpecialToken::Eos, SpecialToken::Bos, SpecialToken::Pad, SpecialToken::Unk];
}
