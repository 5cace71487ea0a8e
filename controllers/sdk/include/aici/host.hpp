// host.hpp - the services of the host: errors, the log, the tokenizer, capabilities, variables, and the changes to this
// sequence since its last step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aici.h"
#include "aici/types.hpp"

namespace aici {

/// Ends the sequence with an error with this message; in a constructor, refuses the argument. All errors of the SDK go
/// through this function, also when memory runs out.
[[noreturn]] void fail(std::string_view message);

/// Handles a failure before the sequence ends. If the handler leaves by longjmp, the sequence continues; if it returns,
/// the sequence ends. The message is valid while the handler runs.
using FailHandler = void (*)(std::string_view message);

/// Sets the handler of the next failure. The handler is called once: a later failure ends the sequence unless a handler
/// is set again. Returns the previous handler, or null. A null `handler` removes the handler. Use it around code that
/// may fail:
///
///   const FailHandler outer = catch_failures(leave);   // which calls longjmp(buffer, 1)
///   const bool failed = setjmp(buffer) != 0;
///   if (!failed) work();
///   catch_failures(outer);
///
/// setjmp needs a C source that is compiled for it. longjmp calls no destructors: objects of the functions in between
/// leak, and objects that they were creating or changing must not be used. There are two exceptions:
///
/// - A Constraint whose `append` or `next` has failed may start over (Constraint::restart), unless memory ran out or
///   its recognizer is a byte stack that has itself failed.
/// - Unfinished Warmable objects (warmable.hpp) are safe: all that were created since the outermost handler was set are
///   removed from the list and no longer warmed.
FailHandler catch_failures(FailHandler handler);

/// Ends the sequence at once, like a Stop result.
[[noreturn]] void stop();

/// Writes to the log, which is streamed to the user. (printf writes to it, too, a line at a time.)
void log(std::string_view text);

/// Tokenizes exactly these bytes with the model's tokenizer, without a beginning-of-sequence token or a space in front.
/// If `Capability::tokenizer` is 0, takes the longest tokens instead. Returns an empty vector if the vocabulary cannot
/// spell these bytes.
std::vector<TokenId> tokenize(std::string_view bytes);

enum class Capability : std::uint32_t {
  fork = AICI_CAP_FORK,
  backtrack = AICI_CAP_BACKTRACK,
  ff_tokens = AICI_CAP_FF_TOKENS,
  suspend = AICI_CAP_SUSPEND,
  logprobs = AICI_CAP_LOGPROBS,
  top_logprobs = AICI_CAP_TOP_LOGPROBS,
  dense = AICI_CAP_DENSE,
  tokenizer = AICI_CAP_TOKENIZER,
  max_forks = AICI_CAP_MAX_FORKS,
  hold_end = AICI_CAP_HOLD_END,
  calls = AICI_CAP_CALLS,
  look = AICI_CAP_LOOK,
  follow = AICI_CAP_FOLLOW,
  drafts = AICI_CAP_DRAFTS,
};

/// Returns whether the engine has a capability, 1 or 0, or a number (`top_logprobs`, `max_forks`, `drafts`, `look`: 1 for lists,
/// 2 for all logits).
std::uint32_t capability(Capability which);

/// A variable, which all forks of a request share.
struct Variable {
  std::uint32_t version;  ///< how often it was written
  std::string value;
};

/// Returns the variable, or nothing if it does not exist.
std::optional<Variable> get_variable(std::string_view name);
/// Writes a variable and returns its new version.
std::uint32_t set_variable(std::string_view name, std::string_view value);
/// Appends to a variable, creating it if necessary, and returns its new version.
std::uint32_t append_variable(std::string_view name, std::string_view value);
/// Writes a variable if its version is `version` (0: if it does not exist). Returns whether it was written.
bool set_variable_if(std::string_view name, std::string_view value, std::uint32_t version);

/// Makes a call and returns its number; `arguments` are JSON. Whoever answers calls of this request does so while the
/// sequence goes on. Requires `Capability::calls`.
std::uint32_t call(std::string_view name, std::string_view arguments);
/// Returns the name of the variable that will have the answer to a call: {"value": ...} or {"error": {...}}. See
/// `get_variable` and `PreResult::suspend_until`.
std::string call_result(std::uint32_t call);

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
