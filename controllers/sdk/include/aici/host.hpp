// host.hpp - what the host does for a controller.
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

/// Ends the sequence with an error that carries this message; in a constructor: refuses the argument. All that the SDK
/// has to complain about comes this way, and so does memory that has run out.
[[noreturn]] void fail(std::string_view message);

/// Hears of a failure before the sequence ends. It may leave by longjmp, and the sequence goes on; if it returns, the
/// sequence ends. The message is there as long as it runs.
using FailHandler = void (*)(std::string_view message);

/// Has a handler called, once: the failure after that one ends the sequence, unless this has been called again. Returns
/// the handler that was set before, or null; null: none shall be called. Around what may fail:
///
///   const FailHandler outer = catch_failures(leave);   // which calls longjmp(buffer, 1)
///   const bool failed = setjmp(buffer) != 0;
///   if (!failed) work();
///   catch_failures(outer);
///
/// setjmp needs a C source that is compiled for it. What is left by longjmp is not destroyed: what the functions in
/// between own leaks, and what they were making or changing must not be used. There are two exceptions. A Constraint
/// of which `append` or `next` has failed may start over (Constraint::restart), unless memory had run out or its
/// recognizer is a byte stack that has failed by itself. And nothing warmable (warmable.hpp) is left behind half made:
/// all that came to be since the outermost handler was set is not filled ahead any more.
FailHandler catch_failures(FailHandler handler);

/// Ends the sequence at once, as if Stop had been returned.
[[noreturn]] void stop();

/// Writes to the log, which the user sees as it grows. (printf does too, a line at a time.)
void log(std::string_view text);

/// Tokenizes bytes as the model's tokenizer would; exactly these bytes: no beginning-of-sequence token
/// and no space are put in front. If `Capability::tokenizer` is 0 the longest tokens are taken instead.
/// Empty if the vocabulary cannot spell these bytes.
std::vector<TokenId> tokenize(std::string_view bytes);

enum class Capability : std::uint32_t {
  fork = AICI_CAP_FORK,
  backtrack = AICI_CAP_BACKTRACK,
  ff_tokens = AICI_CAP_FF_TOKENS,
  suspend = AICI_CAP_SUSPEND,
  logprobs = AICI_CAP_LOGPROBS,
  top_k = AICI_CAP_TOP_K,
  dense = AICI_CAP_DENSE,
  tokenizer = AICI_CAP_TOKENIZER,
  max_forks = AICI_CAP_MAX_FORKS,
  hold_end = AICI_CAP_HOLD_END,
};

/// What the engine can do: 1 or 0, or a number (`top_k`, `max_forks`).
std::uint32_t capability(Capability which);

/// The forks of one request share variables.
struct Variable {
  std::uint32_t version;  ///< how often it was written
  std::string value;
};

/// The variable, or nothing if it is missing.
std::optional<Variable> get_variable(std::string_view name);
/// Writes it; returns its new version.
std::uint32_t set_variable(std::string_view name, std::string_view value);
/// Appends to it (to nothing, if it is missing); returns its new version.
std::uint32_t append_variable(std::string_view name, std::string_view value);
/// Writes it if its version is still `version` (0: if it is still missing). Returns false if it is not.
bool set_variable_if(std::string_view name, std::string_view value, std::uint32_t version);

}  // namespace aici
