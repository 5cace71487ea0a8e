// session.hpp - a script's sequence, and the action that it awaits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aici/controller.hpp"
#include "generation.hpp"
#include "patterns.hpp"
#include "row.hpp"
#include "script.h"
#include "sequence.hpp"

namespace script {

/// What `main` awaits. One at a time: an action is over before the script goes on.
struct Action {
  enum class Kind : std::uint8_t { none, generate, sample, fork, wait, step };
  Kind kind = Kind::none;
  bool over = true;
  /// It failed, and this is why.
  std::string failure;

  std::unique_ptr<Generation> generation;

  /// sample: what may come, and what came
  Row row;
  script_scored sampled{};
  std::vector<script_top> tops;

  /// fork: into how many, and which this is
  std::uint32_t forks = 0, index = 0;
  /// step: it has been waited for
  bool waited = false;
  /// wait: for these variables
  std::vector<std::string> names;
};

class Session {
 public:
  Sequence sequence;
  Patterns patterns;
  Action action;
  /// There is a prompt: the script's top level has run.
  bool has_begun = false;
  /// `main` has asked for the end.
  bool is_stopped = false;

  /// Begins an action; the one before is forgotten.
  Action& begin(Action::Kind kind);
  /// Takes note of what has happened to the sequence since the last step; the second time in a step, of a fork.
  void note();
  /// What the engine is to do next; nothing: the action is over, and the script decides.
  std::optional<aici::MidResult> next();
  /// Is pre_process to be called in the next step?
  bool needs_pre() const {
    return !action.over && (action.kind == Action::Kind::fork || action.kind == Action::Kind::wait);
  }
  aici::PreResult pre();

 private:
  void note_tokens(const aici::Step& step);
  std::optional<aici::MidResult> act();
  bool all_there() const;

  /// The last step that was taken note of.
  std::uint32_t noted_ = 0;
};

/// The one of this instance.
Session& session();

}  // namespace script
