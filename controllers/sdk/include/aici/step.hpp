// step.hpp - the changes to this sequence since its last step.
#pragma once

#include <cstdint>
#include <span>

#include "aici.h"
#include "aici/types.hpp"

namespace aici {

/// A token with the natural logarithm of its probability.
using Top = aici_top;

/// A view of the step's argument, returned by `step()`. The spans that it returns are valid until the callback returns.
class Step {
 public:
  /// Returns the id of this sequence; a fork's child has a new id.
  SeqId seq_id() const { return arg_.seq_id; }
  /// Returns the number of steps of this sequence, including this one.
  std::uint32_t number() const { return arg_.step; }
  /// Returns the tokens appended since the last step: one sampled token, or those of a splice.
  std::span<const TokenId> tokens() const;
  /// Returns the number of tokens removed before `tokens` were appended.
  std::uint32_t backtrack() const { return arg_.backtrack; }
  /// Returns whether `tokens()[0]` was sampled under the row of the last `mid_process`.
  bool sampled() const { return arg_.flags & AICI_ARG_SAMPLED; }
  /// Returns the natural logarithm of the sampled token's probability before masking, at the sampling temperature; NaN
  /// if the engine does not report it.
  float logprob() const { return arg_.logprob; }
  /// Returns the total probability of the tokens that the row allowed, in the same distribution; or NaN.
  float allowed_mass() const { return arg_.allowed_mass; }
  /// Returns whether this call answers `MidResult::look`.
  bool looked() const { return arg_.flags & AICI_ARG_LOOKED; }
  /// Returns the logits of the next token as the model has computed them, one for each token of the vocabulary, if the
  /// last result was `MidResult::look()`.
  std::span<const float> logits() const;
  /// Returns the most likely tokens, most likely first, if the last result requested them.
  std::span<const Top> top() const;
  /// Returns the sequences of the last fork, including this one.
  std::span<const SeqId> fork_group() const;

  constexpr Step() = default;
  Step(const Step&) = delete;
  aici_step_arg* arg() { return &arg_; }

 private:
  aici_step_arg arg_ = {.size = sizeof(aici_step_arg)};
};

/// Returns the current step. In a constructor all its values are 0.
const Step& step();

/// Returns the id of this sequence, which other sequences find in their fork group.
inline SeqId self_seq_id() { return step().seq_id(); }

}  // namespace aici
