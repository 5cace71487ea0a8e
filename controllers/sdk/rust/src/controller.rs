//! The controller interface, and the results of its functions.

use std::rc::Rc;

use crate::abi::{self, Bias};
use crate::{SeqId, TokenId, TokenSet};

/// A controller. Each sequence has one value; a fork copies it with the whole memory.
///
/// In each step the host calls `post_process` with the appended tokens, then `pre_process`, and then, while the
/// model computes, `mid_process`. The engine waits for the first two, so omit them if you can (see `export!`). A
/// controller without them adds no time between tokens; it reads the tokens with `aici::step().tokens()`.
pub trait AiciCtrl {
    /// Fills tables ahead, about a millisecond of work per call; returns true if there is more to do. If `export!`
    /// names it, it may be called repeatedly after the controller is created and before the prompt; later sequences
    /// start from the result. It may never be called, so no answer may depend on it.
    fn warm(&mut self) -> bool {
        false
    }

    /// Called once, with the prompt. About 1000 ms.
    fn init_prompt(&mut self, _prompt: &[TokenId]) {}

    /// Called before `mid_process`; can fork or suspend. About 1 ms.
    fn pre_process(&mut self) -> PreResult {
        PreResult::Continue
    }

    /// Returns the next row, a splice, or the end. About 20 ms, while the model computes.
    fn mid_process(&mut self, fork_group: &[SeqId]) -> MidResult;

    /// Called after tokens were appended. About 1 ms.
    fn post_process(&mut self, _tokens: &[TokenId]) -> PostResult {
        PostResult::Continue
    }
}

/// A variable for which a sequence waits: until its version is above `version` (0: until it exists).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub name: String,
    pub version: u32,
}

/// The result of `pre_process`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreResult {
    Stop,
    Continue,
    /// Skips this step: the sequence gets no token.
    Suspend,
    /// Suspends the sequence until one of these holds, or for so many milliseconds (0: without a limit); `pre_process`
    /// is not called before.
    SuspendUntil {
        waits: Vec<Wait>,
        milliseconds: u32,
    },
    /// Continues as this many sequences: 0 is `Stop`, 1 is `Continue`. All see the same fork group in
    /// `mid_process`.
    Fork {
        num_forks: u32,
    },
}

/// The result of `post_process`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostResult {
    Stop,
    Continue,
}

/// The result of `mid_process`.
#[derive(Clone, Debug)]
pub enum MidResult {
    Stop,
    /// Samples one token.
    Sample(Sample),
    /// Removes the last `backtrack` tokens, then appends `ff_tokens`; samples nothing. With nothing to remove or append,
    /// the sequence waits for a step.
    Splice {
        backtrack: u32,
        ff_tokens: Vec<TokenId>,
    },
    /// Shows the distribution of the next token before this sequence decides: `mid_process` is called again once the
    /// model has computed it, without new tokens, and `step().looked()` is true. Then `step().logits()` are the logits,
    /// or, with `top_logprobs`, `step().top()` the most likely tokens at temperature 1. `own`: without the logits of
    /// sequences that follow this one. Requires `Capability::Look`.
    Look {
        top_logprobs: u32,
        own: bool,
    },
    /// From now on this sequence gets the tokens of another one of its request, the leader, and no function is called
    /// any more. The leader's tokens are sampled from the sum of the logits of both, and of others that follow it, each
    /// times its weight; the leader's own weight makes the sum of all weights 1. `model`: the name of a second model of
    /// the engine, which computes the logits of this sequence; empty: the engine's own. Requires `Capability::Follow`.
    Follow {
        leader: SeqId,
        weight: f32,
        model: String,
    },
    /// A sample with drafts, made by `with_drafts`.
    Drafted {
        drafts: Vec<TokenId>,
        result: Box<MidResult>,
    },
    /// A result with flags, made by `holding_end`, `skipping_pre` and `skipping_post`.
    Flagged {
        flags: u32,
        result: Box<MidResult>,
    },
}

/// How a token is sampled.
#[derive(Clone, Debug)]
pub struct Sample {
    pub row: Row,
    /// The temperature for this token; `None`: the request's, `Some(aici::GREEDY)`: the most likely token.
    pub temperature: Option<f32>,
    /// Requests this many of the most likely tokens, which the next step's `top()` returns.
    pub top_logprobs: u32,
    pub truncation: Truncation,
}

/// Options that leave out unlikely tokens, for one token; docs/abi.md defines them. 0: the request's own option.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Truncation {
    pub top_p: f32,
    pub top_k: u32,
    pub min_p: f32,
    pub typical_p: f32,
    pub top_n_sigma: f32,
}

/// The tokens that may be sampled.
#[derive(Clone, Debug)]
pub enum Row {
    All,
    Tokens(Rc<TokenSet>),
    Token(TokenId),
    /// Adds each bias to the logit of its token, and `others`, 0 or -inf, to all others.
    Biases {
        biases: Vec<Bias>,
        others: f32,
    },
    /// A bias for every token of the vocabulary.
    Dense(Vec<f32>),
    /// The row of this sequence's last sample; cheaper for the host than passing the same set again.
    Same,
}

impl From<TokenSet> for Row {
    fn from(set: TokenSet) -> Self {
        Row::Tokens(Rc::new(set))
    }
}

impl From<&Rc<TokenSet>> for Row {
    fn from(set: &Rc<TokenSet>) -> Self {
        Row::Tokens(Rc::clone(set))
    }
}

impl MidResult {
    /// Samples under `row`: a `TokenSet`, an `&Rc<TokenSet>` that the controller keeps, or a `Row`.
    pub fn sample(row: impl Into<Row>) -> Self {
        MidResult::Sample(Sample {
            row: row.into(),
            temperature: None,
            top_logprobs: 0,
            truncation: Truncation::default(),
        })
    }

    /// Samples any token.
    pub fn sample_any() -> Self {
        Self::sample(Row::All)
    }

    /// Forces this token, as the only one allowed.
    pub fn force(token: TokenId) -> Self {
        Self::sample(Row::Token(token))
    }

    /// Removes the last `backtrack` tokens, then appends `ff_tokens`.
    pub fn splice(backtrack: u32, ff_tokens: Vec<TokenId>) -> Self {
        MidResult::Splice { backtrack, ff_tokens }
    }

    /// Lets an end-of-sequence token from this result not end the sequence: the next step reports it like any other
    /// token. Requires `Capability::HoldEnd`; otherwise it has no effect.
    pub fn holding_end(self) -> Self {
        self.flagged(abi::MID_HOLD_END)
    }

    /// Skips `pre_process` in the next step. If `post_process` is skipped, too, or not exported, the engine does not
    /// wait for this sequence.
    pub fn skipping_pre(self) -> Self {
        self.flagged(abi::MID_SKIP_PRE)
    }

    /// Skips `post_process` in the next step; `mid_process` reads the tokens with `aici::step().tokens()`.
    pub fn skipping_post(self) -> Self {
        self.flagged(abi::MID_SKIP_POST)
    }

    /// Names tokens that this controller expects after the sampled one. If the engine samples them indeed, it needs fewer
    /// passes of the model; they do not change what is sampled. At most `Capability::Drafts`.
    pub fn with_drafts(self, drafts: Vec<TokenId>) -> Self {
        MidResult::Drafted { drafts, result: Box::new(self) }
    }

    fn flagged(self, flag: u32) -> Self {
        match self {
            MidResult::Flagged { flags, result } => MidResult::Flagged { flags: flags | flag, result },
            result => MidResult::Flagged { flags: flag, result: Box::new(result) },
        }
    }
}

impl PreResult {
    /// Returns the struct for the host. It has addresses of names that `self` owns, and of `raw_waits`, which it fills.
    pub(crate) fn raw(&self, raw_waits: &mut Vec<abi::Wait>) -> abi::PreResult {
        raw_waits.clear();
        let (verb, num_forks, wait_ms) = match self {
            PreResult::Stop => (abi::STOP, 0, 0),
            PreResult::Continue => (abi::CONTINUE, 1, 0),
            PreResult::Suspend => (abi::SUSPEND, 0, 0),
            PreResult::SuspendUntil { waits, milliseconds } => {
                raw_waits.extend(waits.iter().map(|wait| {
                    let (name, name_len) = place(wait.name.as_bytes());
                    abi::Wait { name, name_len, version: wait.version }
                }));
                (abi::SUSPEND, 0, *milliseconds)
            }
            PreResult::Fork { num_forks } => (abi::FORK, *num_forks, 0),
        };
        let (waits, num_waits) = place(raw_waits);
        abi::PreResult { verb, num_forks, waits, num_waits, wait_ms, ..abi::PreResult::STOP }
    }
}

impl PostResult {
    pub(crate) fn raw(self) -> abi::PostResult {
        let verb = match self {
            PostResult::Stop => abi::STOP,
            PostResult::Continue => abi::CONTINUE,
        };
        abi::PostResult { verb, ..abi::PostResult::STOP }
    }
}

impl MidResult {
    /// Returns the struct for the host. It has addresses of data that `self` owns.
    pub(crate) fn raw(&self) -> abi::MidResult {
        let mut raw = abi::MidResult::STOP;
        match self {
            MidResult::Stop => {}
            MidResult::Flagged { flags, result } => {
                raw = result.raw();
                raw.flags |= flags;
            }
            MidResult::Drafted { drafts, result } => {
                raw = result.raw();
                raw.flags |= abi::MID_DRAFTS;
                (raw.ff_tokens, raw.num_ff_tokens) = place(drafts);
            }
            MidResult::Follow { leader, weight, model } => {
                raw.verb = abi::FOLLOW;
                raw.row = *leader;
                raw.temperature = *weight;
                (raw.ff_tokens, raw.num_ff_tokens) = place(model.as_bytes());
            }
            MidResult::Look { top_logprobs, own } => {
                raw.verb = abi::LOOK;
                raw.top_logprobs = *top_logprobs;
                raw.flags |= if *own { abi::MID_OWN } else { 0 };
            }
            MidResult::Splice { backtrack, ff_tokens } => {
                raw.verb = abi::SPLICE;
                raw.backtrack = *backtrack;
                (raw.ff_tokens, raw.num_ff_tokens) = place(ff_tokens);
            }
            MidResult::Sample(sample) => {
                raw.verb = abi::SAMPLE;
                raw.temperature = sample.temperature.unwrap_or(0.0);
                raw.top_logprobs = sample.top_logprobs;
                if sample.truncation != Truncation::default() {
                    let Truncation { top_p, top_k, min_p, typical_p, top_n_sigma } = sample.truncation;
                    let size = size_of::<abi::MidResult>() as u32;
                    raw = abi::MidResult { size, top_p, top_k, min_p, typical_p, top_n_sigma, ..raw };
                }
                (raw.row_kind, (raw.row, raw.row_len)) = match &sample.row {
                    Row::All => (abi::ROW_ALL, (0, 0)),
                    Row::Tokens(set) => (abi::ROW_BITMASK, place(set.words())),
                    Row::Token(token) => (abi::ROW_TOKEN, (*token, 0)),
                    Row::Biases { biases, others } => {
                        raw.row_default = *others;
                        (abi::ROW_SPARSE, place(biases))
                    }
                    Row::Dense(biases) => (abi::ROW_DENSE, place(biases)),
                    Row::Same => (abi::ROW_SAME, (0, 0)),
                };
            }
        }
        raw
    }
}

/// Address and length of a slice.
fn place<T>(items: &[T]) -> (u32, u32) {
    (items.as_ptr() as usize as u32, items.len() as u32)
}
