//! What has happened to this sequence since its last step.

use crate::abi::{self, StepArg, Top};
use crate::{glue, host, SeqId, TokenId};

/// The present step, as the host described it; `step()` gives it.
pub struct Step {
    arg: StepArg,
}

/// The present step. Before the first one all of it is 0.
pub fn step() -> Step {
    Step { arg: glue::step_arg() }
}

/// The id of this sequence, as other sequences find it in their fork group.
pub fn self_seq_id() -> SeqId {
    glue::step_arg().seq_id
}

impl Step {
    /// This sequence; a fork's child has another id.
    pub fn seq_id(&self) -> SeqId {
        self.arg.seq_id
    }

    /// How many steps this sequence has made, this one included.
    pub fn number(&self) -> u32 {
        self.arg.step
    }

    /// The tokens appended since the last step: one that was sampled, or those that a splice appended.
    pub fn tokens(&self) -> Vec<TokenId> {
        list(&self.arg.tokens, self.arg.num_tokens, abi::TOKENS)
    }

    /// How many tokens were removed before `tokens` came.
    pub fn backtrack(&self) -> u32 {
        self.arg.backtrack
    }

    /// Was `tokens()[0]` sampled under the row of the last `mid_process`?
    pub fn sampled(&self) -> bool {
        self.arg.flags & abi::ARG_SAMPLED != 0
    }

    /// Of a sampled token: the natural logarithm of its probability before masking, at the sampling
    /// temperature, if the engine says it.
    pub fn logprob(&self) -> Option<f32> {
        self.known(self.arg.logprob)
    }

    /// The probability of all tokens together that the row allowed, in the same distribution.
    pub fn allowed_mass(&self) -> Option<f32> {
        self.known(self.arg.allowed_mass)
    }

    /// The most likely tokens, most likely first, if the last row asked for them.
    pub fn top(&self) -> Vec<Top> {
        host::read_top(self.arg.num_top)
    }

    /// The sequences that the fork of this step made, this one included.
    pub fn fork_group(&self) -> Vec<SeqId> {
        list(&self.arg.group, self.arg.num_group, abi::GROUP)
    }

    fn known(&self, value: f32) -> Option<f32> {
        (self.arg.flags & abi::ARG_HAS_LOGPROB != 0).then_some(value)
    }
}

/// All of a list whose first entries are in the argument already.
fn list(inline: &[u32], count: u32, source: u32) -> Vec<u32> {
    match inline.get(..count as usize) {
        Some(all) => all.to_vec(),
        None => host::read_words(source, count),
    }
}
