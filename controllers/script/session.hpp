// session.hpp - a script's sequence, and the action that it awaits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aici/controller.hpp"
#include "chat.hpp"
#include "generation.hpp"
#include "patterns.hpp"
#include "row.hpp"
#include "script.h"
#include "sequence.hpp"

namespace script {

/// The action that `main` awaits. There is one at a time: it completes before the script continues.
struct Action {
  enum class Kind : std::uint8_t { none, generate, sample, look, follow, fork, wait, step };
  Kind kind = Kind::none;
  bool over = true;
  /// Why the action failed, if it did.
  std::string failure;

  std::unique_ptr<Generation> generation;

  /// sample: the row, and the sampled token; look: only the number of likely tokens
  Row row;
  script_scored sampled{};
  /// sample, look: the most likely tokens; look: the logits of all tokens
  std::vector<script_top> tops;
  std::vector<float> logits;

  /// look: without the logits of sequences that follow
  bool own = false;
  /// follow: the leader (in `forks`), the weight, and the second model, if any
  float weight = 0;
  std::string model;
  /// fork: the number of sequences, and the index of this one
  std::uint32_t forks = 0, index = 0;
  /// step: whether the step has been awaited
  bool waited = false;
  /// wait: the awaited variables, and the time (of the host's clock, in ns) until which they are awaited; 0: none
  std::vector<std::string> names;
  std::uint64_t until = 0;
};

class Session {
 public:
  Sequence sequence;
  Chat chat;
  Patterns patterns;
  Action action;
  /// Whether there is a prompt: the script's top level has run.
  bool has_begun = false;
  /// Whether `main` has requested the end.
  bool is_stopped = false;
  /// The sequences of the last fork, including this one.
  std::vector<aici::SeqId> group;

  /// Begins an action and drops the previous one.
  Action& begin(Action::Kind kind);
  /// Follows the changes of the sequence since the last step; a second call in a step follows a fork.
  void note();
  /// Returns the next result for the engine; nothing if the action is complete and the script decides.
  std::optional<aici::MidResult> next();
  /// Returns whether the next step needs pre_process.
  bool needs_pre() const {
    return !action.over && (action.kind == Action::Kind::fork || action.kind == Action::Kind::wait);
  }
  aici::PreResult pre();
  /// Returns whether the awaited variables exist.
  bool all_there() const;

 private:
  void note_tokens(const aici::Step& step);
  void note_top(const aici::Step& step);
  std::optional<aici::MidResult> act();
  bool is_waiting() const;
  aici::PreResult wait();

  /// What the host reads after `wait`.
  std::vector<aici::Wait> waits_;
  /// The last step that was followed.
  std::uint32_t noted_ = 0;
};

/// Returns the time of the host's clock in ns, which stands still within a step.
std::uint64_t now();

/// Returns the session of this instance.
Session& session();

}  // namespace script
