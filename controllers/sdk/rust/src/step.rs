//! The changes to this sequence since its last step.

use crate::abi::{self, StepArg, Top};
use crate::{glue, host, SeqId, TokenId};

/// The current step, as the host describes it; `step()` returns it.
pub struct Step {
    arg: StepArg,
}

/// Returns the current step. Before the first step all its values are 0.
pub fn step() -> Step {
    Step { arg: glue::step_arg() }
}

/// Returns the id of this sequence, which other sequences find in their fork group.
pub fn self_seq_id() -> SeqId {
    glue::step_arg().seq_id
}

impl Step {
    /// Returns the id of this sequence; a fork's child has a new id.
    pub fn seq_id(&self) -> SeqId {
        self.arg.seq_id
    }

    /// Returns the number of steps of this sequence, including this one.
    pub fn number(&self) -> u32 {
        self.arg.step
    }

    /// Returns the tokens appended since the last step: one sampled token, or those of a splice.
    pub fn tokens(&self) -> Vec<TokenId> {
        list(&self.arg.tokens, self.arg.num_tokens, abi::TOKENS)
    }

    /// Returns the number of tokens removed before `tokens` were appended.
    pub fn backtrack(&self) -> u32 {
        self.arg.backtrack
    }

    /// Returns whether `tokens()[0]` was sampled under the row of the last `mid_process`.
    pub fn sampled(&self) -> bool {
        self.arg.flags & abi::ARG_SAMPLED != 0
    }

    /// Returns the natural logarithm of the sampled token's probability before masking, at the sampling temperature,
    /// if the engine reports it.
    pub fn logprob(&self) -> Option<f32> {
        self.known(self.arg.logprob)
    }

    /// Returns the total probability of the tokens that the row allowed, in the same distribution.
    pub fn allowed_mass(&self) -> Option<f32> {
        self.known(self.arg.allowed_mass)
    }

    /// Returns whether this call answers `MidResult::Look`.
    pub fn looked(&self) -> bool {
        self.arg.flags & abi::ARG_LOOKED != 0
    }

    /// Returns the logits of the next token, one for each token of the vocabulary, if the last result was a `Look` with
    /// `top` 0.
    pub fn logits(&self) -> Vec<f32> {
        let shown = self.looked() && self.arg.num_top == 0;
        host::read_logits(if shown { crate::vocabulary().vocab_size() as u32 } else { 0 })
    }

    /// Returns the most likely tokens, most likely first, if the last result requested them.
    pub fn top(&self) -> Vec<Top> {
        host::read_top(self.arg.num_top)
    }

    /// Returns the sequences of the fork in this step, including this one.
    pub fn fork_group(&self) -> Vec<SeqId> {
        list(&self.arg.group, self.arg.num_group, abi::GROUP)
    }

    fn known(&self, value: f32) -> Option<f32> {
        (self.arg.flags & abi::ARG_HAS_LOGPROB != 0).then_some(value)
    }
}

/// Reads a whole list, whose first entries are in the argument.
fn list(inline: &[u32], count: u32, source: u32) -> Vec<u32> {
    match inline.get(..count as usize) {
        Some(all) => all.to_vec(),
        None => host::read_words(source, count),
    }
}
