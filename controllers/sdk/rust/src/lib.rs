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
//! There are three layers. A controller (`AiciCtrl`) decides about tokens. A byte stack (`Recognizer`) decides about
//! bytes of text; `AiciRecognizer` makes a controller from it. A `FunctionalRecognizer` consists of functions of a
//! small state; `StackRecognizer` makes a byte stack from it. `cargo test` tests functional recognizers without
//! WebAssembly; `pyaici.testing.Playground` tests controllers in the runtime.

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
pub use controller::{AiciCtrl, MidResult, PostResult, PreResult, Row, Sample, Truncation, Wait};
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

/// Tokens without text. A vocabulary may have several end-of-sequence tokens; `Eos` means all of them.
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
