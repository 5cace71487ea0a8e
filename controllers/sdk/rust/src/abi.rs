//! aici.h in Rust: the same names without the prefix AICI_ or aici_. aici.h documents them.
//!
//! The rest of the crate wraps these declarations; controllers do not need them.

use core::mem::offset_of;

// verbs
pub const STOP: u32 = 0;
pub const CONTINUE: u32 = 1;
pub const SUSPEND: u32 = 2;
pub const FORK: u32 = 3;
pub const SAMPLE: u32 = 4;
pub const SPLICE: u32 = 5;
pub const LOOK: u32 = 8;
pub const FOLLOW: u32 = 9;

// rows
pub const ROW_ALL: u32 = 0;
pub const ROW_BITMASK: u32 = 1;
pub const ROW_TOKEN: u32 = 2;
pub const ROW_SPARSE: u32 = 3;
pub const ROW_DENSE: u32 = 4;
pub const ROW_SAME: u32 = 5;

/// Added to the logit of one token; -inf forbids it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bias {
    pub token: u32,
    pub bias: f32,
}

// the argument of a step
pub const INLINE_TOKENS: usize = 16;
pub const INLINE_GROUP: usize = 16;

pub const ARG_SAMPLED: u32 = 1;
pub const ARG_HAS_LOGPROB: u32 = 2;
pub const ARG_HURRY: u32 = 4;
pub const ARG_LOOKED: u32 = 8;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct StepArg {
    pub size: u32,
    pub seq_id: u32,
    pub step: u32,
    pub flags: u32,
    pub backtrack: u32,
    pub num_tokens: u32,
    pub logprob: f32,
    pub allowed_mass: f32,
    pub num_top: u32,
    pub num_group: u32,
    pub tokens: [u32; INLINE_TOKENS],
    pub group: [u32; INLINE_GROUP],
}

impl StepArg {
    /// Before the first step.
    pub const NONE: Self = Self {
        size: size_of::<Self>() as u32,
        seq_id: 0,
        step: 0,
        flags: 0,
        backtrack: 0,
        num_tokens: 0,
        logprob: 0.0,
        allowed_mass: 0.0,
        num_top: 0,
        num_group: 0,
        tokens: [0; INLINE_TOKENS],
        group: [0; INLINE_GROUP],
    };
}

/// A token with the natural logarithm of its probability.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Top {
    pub token: u32,
    pub logprob: f32,
}

// results
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Wait {
    pub name: u32,
    pub name_len: u32,
    pub version: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PreResult {
    pub size: u32,
    pub verb: u32,
    pub num_forks: u32,
    pub waits: u32,
    pub num_waits: u32,
    pub wait_ms: u32,
}

impl PreResult {
    pub const STOP: Self =
        Self { size: size_of::<Self>() as u32, verb: STOP, num_forks: 0, waits: 0, num_waits: 0, wait_ms: 0 };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct PostResult {
    pub size: u32,
    pub verb: u32,
}

impl PostResult {
    pub const STOP: Self = Self { size: size_of::<Self>() as u32, verb: STOP };
}

pub const GREEDY: f32 = -1.0;

pub const MID_HOLD_END: u32 = 1;
pub const MID_SKIP_PRE: u32 = 2;
pub const MID_SKIP_POST: u32 = 4;
pub const MID_DRAFTS: u32 = 8;
pub const MID_OWN: u32 = 16;

/// `row` and `ff_tokens` are addresses (or the token of ROW_TOKEN).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MidResult {
    pub size: u32,
    pub verb: u32,
    pub row_kind: u32,
    pub row: u32,
    pub row_len: u32,
    pub row_default: f32,
    pub temperature: f32,
    pub top_logprobs: u32,
    pub backtrack: u32,
    pub ff_tokens: u32,
    pub num_ff_tokens: u32,
    pub flags: u32,
    pub top_p: f32,
    pub top_k: u32,
    pub min_p: f32,
    pub typical_p: f32,
    pub top_n_sigma: f32,
}

impl MidResult {
    /// Ends before the options that leave out tokens.
    pub const STOP: Self = Self {
        size: offset_of!(Self, top_p) as u32,
        verb: STOP,
        row_kind: ROW_ALL,
        row: 0,
        row_len: 0,
        row_default: 0.0,
        temperature: 0.0,
        top_logprobs: 0,
        backtrack: 0,
        ff_tokens: 0,
        num_ff_tokens: 0,
        flags: 0,
        top_p: 0.0,
        top_k: 0,
        min_p: 0.0,
        typical_p: 0.0,
        top_n_sigma: 0.0,
    };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct FoundResult {
    pub size: u32,
    pub data: u32,
    pub data_len: u32,
}

// imports
pub const ARG: u32 = 0;
pub const PROMPT: u32 = 1;
pub const TOKENS: u32 = 2;
pub const GROUP: u32 = 3;
pub const TOP: u32 = 4;
pub const VALUE: u32 = 5;
pub const TOKENIZED: u32 = 6;
pub const FOUND: u32 = 7;
pub const LOGITS: u32 = 8;

pub const VOCABULARY_MAGIC: u32 = 0x56434941;
pub const VOCABULARY_VERSION: u32 = 1;

/// The header of the vocabulary image. From `nodes` on, the fields are offsets of sections, except `num_slices` and `num_turns`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VocabularyHeader {
    pub magic: u32,
    pub version: u32,
    pub total_size: u32,
    pub vocab_size: u32,
    pub mask_words: u32,
    pub mask_stride: u32,
    pub num_nodes: u32,
    pub num_ordered: u32,
    pub num_eos: u32,
    pub num_duplicates: u32,
    pub num_long: u32,
    pub max_token_len: u32,
    pub num_classes: u32,
    pub bos: u32,
    pub pad: u32,
    pub unk: u32,
    pub nodes: u32,
    pub order: u32,
    pub class_masks: u32,
    pub text_mask: u32,
    pub token_offsets: u32,
    pub token_bytes: u32,
    pub flags: u32,
    pub eos: u32,
    pub byte_class: u32,
    pub duplicates: u32,
    pub long_tokens: u32,
    pub num_slices: u32,
    pub slices: u32,
    pub slice_masks: u32,
    pub turns: u32,
    pub num_turns: u32,
}

pub const NO_TOKENS: u32 = 0xffffffff;

pub const ANY_VERSION: u32 = 0xffffffff;
pub const SET: u32 = 0;
pub const APPEND: u32 = 1;

pub const CAP_FORK: u32 = 1;
pub const CAP_BACKTRACK: u32 = 2;
pub const CAP_FF_TOKENS: u32 = 3;
pub const CAP_SUSPEND: u32 = 4;
pub const CAP_LOGPROBS: u32 = 5;
pub const CAP_TOP_LOGPROBS: u32 = 6;
pub const CAP_DENSE: u32 = 7;
pub const CAP_TOKENIZER: u32 = 8;
pub const CAP_MAX_FORKS: u32 = 9;
pub const CAP_HOLD_END: u32 = 10;
pub const CAP_CALLS: u32 = 11;
pub const CAP_LOOK: u32 = 12;
pub const CAP_FOLLOW: u32 = 13;
pub const CAP_DRAFTS: u32 = 14;

#[cfg(target_arch = "wasm32")]
#[link(wasm_import_module = "aici")]
extern "C" {
    pub fn read(source: u32, offset: u32, dst: *mut u8, len: u32) -> u32;
    pub fn vocabulary() -> *const VocabularyHeader;
    pub fn tokenize(src: *const u8, len: u32) -> u32;
    pub fn var_get(name: *const u8, name_len: u32, len: *mut u32) -> u32;
    pub fn var_write(
        name: *const u8,
        name_len: u32,
        value: *const u8,
        value_len: u32,
        op: u32,
        when_version: u32,
    ) -> u32;
    pub fn call(name: *const u8, name_len: u32, arguments: *const u8, arguments_len: u32) -> u32;
    pub fn capability(id: u32) -> u32;
    pub fn stop() -> !;
    pub fn fail(message: *const u8, len: u32) -> !;
}

#[cfg(target_arch = "wasm32")]
#[link(wasm_import_module = "wasi_snapshot_preview1")]
extern "C" {
    /// Pieces are (address, length) pairs.
    pub fn fd_write(fd: u32, pieces: *const [usize; 2], count: usize, written: *mut usize) -> u32;
}
