// step.hpp - what has happened to this sequence since its last step.
#pragma once

#include <cstdint>
#include <span>

#include "aici.h"
#include "aici/types.hpp"

namespace aici {

/// A token with the natural logarithm of its probability.
using Top = aici_top;

/// A view of the step's argument; `step()` gives it. What it returns is valid until the callback returns.
class Step {
 public:
  /// This sequence; a fork's child has another id.
  SeqId seq_id() const { return arg_.seq_id; }
  /// How many steps this sequence has made.
  std::uint32_t number() const { return arg_.step; }
  /// The tokens appended since the last step: one that was sampled, or those that a splice appended.
  std::span<const TokenId> tokens() const;
  /// How many tokens were removed before `tokens` came.
  std::uint32_t backtrack() const { return arg_.backtrack; }
  /// Was `tokens()[0]` sampled under the row of the last `mid_process`?
  bool sampled() const { return arg_.flags & AICI_ARG_SAMPLED; }
  /// Of a sampled token: the natural logarithm of its probability before masking, at the sampling
  /// temperature; NaN if the engine does not say.
  float logprob() const { return arg_.logprob; }
  /// The probability of all tokens together that the row allowed, in the same distribution; or NaN.
  float allowed_mass() const { return arg_.allowed_mass; }
  /// The most likely tokens, most likely first, if the last row asked for them.
  std::span<const Top> top() const;
  /// The sequences that run side by side since the last fork, this one included.
  std::span<const SeqId> fork_group() const;

  constexpr Step() = default;
  Step(const Step&) = delete;
  aici_step_arg* arg() { return &arg_; }

 private:
  aici_step_arg arg_ = {.size = sizeof(aici_step_arg)};
};

/// The present step. In a constructor there is none yet: everything is 0.
const Step& step();

/// The id of this sequence, as other sequences find it in their fork group.
inline SeqId self_seq_id() { return step().seq_id(); }

}  // namespace aici
