// Functions of script.h for actions, patterns and the sequence.
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"
#include "answer.hpp"
#include "failure.hpp"
#include "follow.hpp"
#include "session.hpp"

using script::Action;
using script::attempt;
using script::Options;
using script::Row;
using script::session;

namespace {

std::string_view view(script_text text) { return {text.data, text.size}; }
std::span<const aici::TokenId> view(script_tokens tokens) { return {tokens.data, tokens.size}; }
script_tokens raw(std::span<const aici::TokenId> tokens) { return {tokens.data(), tokens.size()}; }

script_error check_biases(const script_options& options) {
  if ((options.favoured == nullptr && options.num_biases == 0) || aici::capability(aici::Capability::dense) != 0)
    return nullptr;
  return "this engine supports no biases (capability dense): sample without them";
}

script_error check_row(const script_row& row) {
  if (script_error error = check_biases(row.options)) return error;
  if (row.mask == nullptr) return nullptr;
  for (std::uint32_t word = 0; word < aici::vocabulary().mask_words(); word++)
    if (row.mask[word] != 0) return nullptr;
  return "the set of allowed tokens is empty: allow at least one token";
}

script_error check_look(std::uint32_t top) {
  const std::uint32_t level = aici::capability(aici::Capability::look);
  if (level == 0) return "this engine shows no distributions: see capability(\"look\")";
  return level == 1 && top == 0 ? "this engine shows the most likely tokens only: ask for a number of them" : nullptr;
}

Row make_row(const script_row& from) {
  Row row{.mask = {}, .options = Options(from.options)};
  if (from.mask != nullptr) row.mask.assign(from.mask, from.mask + aici::vocabulary().mask_words());
  return row;
}

constexpr const char* kNoText =
    "the top level of a script runs before any request, so there is no text yet: call this function in main";

/// Returns the failure of the completed action, or null.
script_error outcome() {
  const Action& action = session().action;
  return action.failure.empty() ? nullptr : action.failure.c_str();
}

}  // namespace

// ---- the sequence

script_tokens script_all_tokens(void) { return raw(session().sequence.tokens()); }
size_t script_prompt_size(void) { return session().sequence.prompt_size(); }

script_error script_force(script_tokens tokens) {
  if (!session().has_begun) return kNoText;
  session().sequence.force(view(tokens));
  return nullptr;
}

script_error script_rewind(size_t size) {
  if (!session().has_begun) return kNoText;
  if (size >= session().sequence.size()) return nullptr;
  if (aici::capability(aici::Capability::backtrack) == 0)
    return "this engine cannot backtrack: see capability(\"backtrack\")";
  session().sequence.cut(size);
  return nullptr;
}

script_error script_turn(script_role role, script_text name, script_text content) {
  if (!session().has_begun) return kNoText;
  return attempt([&] {
    session().chat.append(session().sequence, static_cast<aici::Role>(role), view(name), view(content));
  });
}

uint32_t script_label(void) { return session().sequence.mark(); }

script_error script_label_place(uint32_t label, size_t* place) {
  *place = session().sequence.place(label);
  if (*place != script::Sequence::kGone) return nullptr;
  return "this label is no longer valid: the text was rewound to before it";
}

// ---- patterns

script_error script_pattern(script_kind kind, script_text source, uint32_t* pattern) {
  return attempt([&] { *pattern = session().patterns.find(kind, view(source)); });
}

script_error script_follow(uint32_t pattern, uint32_t* constraint) {
  return attempt([&] { *constraint = script::follow(session().patterns.make(pattern)); });
}

void script_unfollow(uint32_t constraint) { script::unfollow(constraint); }

script_error script_follow_append(uint32_t constraint, script_tokens tokens) {
  return attempt([&] { script::followed(constraint).append(view(tokens)); });
}

bool script_follow_ended(uint32_t constraint) { return script::followed(constraint).ended(); }

script_error script_follow_may_end(uint32_t constraint, bool* may_end) {
  return attempt([&] { *may_end = script::followed(constraint).may_end(); });
}

script_error script_follow_next(uint32_t constraint, script_tokens* certain, const uint32_t** mask) {
  *certain = {nullptr, 0};
  *mask = nullptr;
  return attempt([&] {
    // forced and allowed tokens are in the result or in the constraint, which stay valid until the next call
    [[clang::no_destroy]] static aici::MidResult last = aici::MidResult::stop();
    last = script::followed(constraint).next();
    const aici_mid_result& result = last.raw();
    if (result.verb == AICI_SPLICE)
      *certain = {reinterpret_cast<const uint32_t*>(result.ff_tokens), result.num_ff_tokens};
    else if (result.verb == AICI_SAMPLE && result.row_kind == AICI_ROW_TOKEN)
      *certain = {&result.row, 1};
    else if (result.verb == AICI_SAMPLE)
      *mask = reinterpret_cast<const uint32_t*>(result.row);
  });
}

// ---- actions

script_error script_begin_generation(const script_generation* what) {
  if (script_error error = check_biases(what->options)) return error;
  Action& action = session().begin(Action::Kind::generate);
  return attempt([&] {
    action.generation = std::make_unique<script::Generation>(*what, session().patterns, session().sequence);
  });
}

script_error script_begin_sample(const script_row* row) {
  if (script_error error = check_row(*row)) return error;
  session().begin(Action::Kind::sample).row = make_row(*row);
  return nullptr;
}

script_error script_begin_fork(uint32_t count) {
  if (count == 0) return "a fork needs at least one sequence: call stop() to end this one";
  if (count > 1 && aici::capability(aici::Capability::fork) == 0)
    return "this engine cannot fork: see capability(\"fork\")";
  const std::uint32_t most = aici::capability(aici::Capability::max_forks);
  if (count > most && count > 1) {
    return script::failure("a fork into " + std::to_string(count) + ": a request may have at most " +
                           std::to_string(most) + " sequences");
  }
  Action& action = session().begin(Action::Kind::fork);
  action.forks = count;
  action.over = count == 1;
  return nullptr;
}

void script_begin_wait(const script_text* names, size_t count, uint32_t milliseconds) {
  constexpr std::uint64_t kPerMillisecond = 1'000'000;
  Action& action = session().begin(Action::Kind::wait);
  if (milliseconds != 0) action.until = script::now() + milliseconds * kPerMillisecond;
  for (size_t i = 0; i < count; i++) action.names.emplace_back(view(names[i]));
}

void script_begin_step(void) { session().begin(Action::Kind::step); }

script_error script_generation_result(script_generated* result) {
  if (script_error error = outcome()) return error;
  *result = session().action.generation->result();
  return nullptr;
}

script_error script_sample_result(script_generated* result) {
  const Action& action = session().action;
  if (script_error error = outcome()) return error;
  *result = {.tokens = &action.sampled, .num_tokens = 1, .tops = action.tops.data()};
  return nullptr;
}

script_error script_fork_result(uint32_t* index) {
  *index = session().action.index;
  return outcome();
}

script_error script_wait_result(bool* there) {
  *there = session().all_there();
  return outcome();
}

script_error script_begin_look(uint32_t top, bool own) {
  if (script_error error = check_look(top)) return error;
  Action& action = session().begin(Action::Kind::look);
  action.row.options.top_logprobs = top;
  action.own = own;
  return nullptr;
}

script_error script_begin_follow(uint32_t leader, float weight, script_text model) {
  if (aici::capability(aici::Capability::follow) == 0)
    return "this engine does not mix the logits of sequences: see capability(\"follow\")";
  if (!std::isfinite(weight)) return "a weight is a finite number";
  Action& action = session().begin(Action::Kind::follow);
  action.forks = leader;
  action.weight = weight;
  action.model = std::string(view(model));
  return nullptr;
}

script_tokens script_fork_group(void) { return raw(session().group); }

script_error script_look_result(script_distribution* result) {
  const Action& action = session().action;
  *result = {.logits = action.logits.data(),
             .size = action.logits.size(),
             .top = action.tops.data(),
             .num_top = action.tops.size()};
  return outcome();
}

// ---- callbacks

namespace script {

Answer& answer() {
  [[clang::no_destroy]] static Answer only;
  return only;
}

}  // namespace script

script_step script_present_step(void) {
  const aici::Step& step = aici::step();
  const auto top = step.top();
  const auto logits = step.logits();
  static_assert(sizeof(script_top) == sizeof(aici::Top));
  return {.sequence = step.seq_id(),
          .number = step.number(),
          .tokens = raw(step.tokens()),
          .backtrack = step.backtrack(),
          .sampled = step.sampled(),
          .logprob = step.logprob(),
          .allowed_mass = step.allowed_mass(),
          .top = reinterpret_cast<const script_top*>(top.data()),
          .num_top = top.size(),
          .group = raw(step.fork_group()),
          .looked = step.looked(),
          .logits = logits.data(),
          .num_logits = logits.size()};
}

void script_answer_stop(void) { script::answer().stop = true; }
void script_answer_suspend(void) { script::answer().suspend = true; }
void script_answer_fork(uint32_t count) { script::answer().forks = count; }

script_error script_answer_sample(const script_row* row) {
  if (script_error error = check_row(*row)) return error;
  script::answer().row = make_row(*row);
  return nullptr;
}

script_error script_answer_look(uint32_t top) {
  if (script_error error = check_look(top)) return error;
  script::answer().look = top;
  return nullptr;
}

void script_answer_splice(uint32_t backtrack, script_tokens tokens) {
  script::Answer& answer = script::answer();
  answer.splice = true;
  answer.backtrack = backtrack;
  answer.tokens.assign(tokens.data, tokens.data + tokens.size);
}
