#include "session.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <wasi/api.h>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"
#include "failure.hpp"

namespace script {

using Kind = Action::Kind;

namespace {

/// The host's limit: one of so many variables is enough to look again.
constexpr std::size_t kMaxWaits = 64;

bool exists(const std::string& name) {
  return aici_var_get(name.data(), static_cast<std::uint32_t>(name.size()), nullptr) != 0;
}

}  // namespace

// The host drops instances as a whole, so nothing is ever destroyed.
Session& session() {
  [[clang::no_destroy]] static Session only;
  return only;
}

Action& Session::begin(Kind kind) {
  action = Action();
  action.kind = kind;
  action.over = false;
  return action;
}

void Session::note() {
  const aici::Step& step = aici::step();
  if (step.number() != noted_) {
    noted_ = step.number();
    note_tokens(step);
    if (action.kind == Kind::look && !action.over && step.looked()) {
      note_top(step);
      action.logits.assign(step.logits().begin(), step.logits().end());
      action.over = true;
    }
  }
  if (action.kind == Kind::fork && !action.over && step.fork_group().size() > 1) {
    const auto group = step.fork_group();
    this->group.assign(group.begin(), group.end());
    action.index = static_cast<std::uint32_t>(std::find(group.begin(), group.end(), step.seq_id()) - group.begin());
    action.over = true;
  }
}

void Session::note_tokens(const aici::Step& step) {
  const std::span<const aici::TokenId> came = sequence.note(step);
  if (came.empty() || action.over) return;
  if (action.kind == Kind::generate) {
    if (const char* error = attempt([&] { action.generation->append(came, step); })) action.failure = error;
    action.over = !action.failure.empty() || action.generation->over();
  } else if (action.kind == Kind::sample) {
    action.sampled = {came.front(), step.logprob(), step.allowed_mass(), 0, 0};
    if (!step.sampled()) action.sampled.logprob = action.sampled.allowed_mass = std::numeric_limits<float>::quiet_NaN();
    note_top(step);
    action.sampled.num_top = static_cast<std::uint32_t>(action.tops.size());
    action.over = true;
  }
}

void Session::note_top(const aici::Step& step) {
  for (const aici::Top& top : step.top()) action.tops.push_back({top.token, top.logprob});
}

std::optional<aici::MidResult> Session::next() {
  if (action.over) return std::nullopt;
  if (sequence.has_news()) {
    action.waited = true;
    return sequence.news();
  }
  std::optional<aici::MidResult> result;
  if (const char* error = attempt([&] { result = act(); })) {
    action.failure = error;
    result.reset();
  }
  if (!result) action.over = true;
  return result;
}

std::optional<aici::MidResult> Session::act() {
  switch (action.kind) {
    case Kind::generate:
      return action.generation->next();
    case Kind::sample:
      return action.row.result();
    case Kind::look:
      return aici::MidResult::look(action.row.options.top_logprobs, action.own);
    case Kind::follow:
      return aici::MidResult::follow(action.forks, action.weight, action.model);
    case Kind::wait:
      if (!is_waiting()) return std::nullopt;
      [[fallthrough]];
    case Kind::fork:  // pre_process does both in the next step
      return aici::MidResult::splice(0, {});
    case Kind::step:
      if (std::exchange(action.waited, true)) return std::nullopt;
      return aici::MidResult::splice(0, {});
    case Kind::none:
      return std::nullopt;
  }
  return std::nullopt;
}

aici::PreResult Session::pre() {
  if (action.over || sequence.has_news()) return aici::PreResult::go_on();
  if (action.kind == Kind::fork) return aici::PreResult::fork(action.forks);
  if (action.kind == Kind::wait && is_waiting() && aici::capability(aici::Capability::suspend) != 0) return wait();
  return aici::PreResult::go_on();
}

std::uint64_t now() {
  __wasi_timestamp_t found = 0;
  return __wasi_clock_time_get(__WASI_CLOCKID_MONOTONIC, 1, &found) == 0 ? found : 0;
}

bool Session::is_waiting() const {
  if (action.until != 0 && now() >= action.until) return false;
  return !all_there() || (action.names.empty() && action.until != 0);
}

aici::PreResult Session::wait() {
  constexpr std::uint64_t kPerMillisecond = 1'000'000;
  waits_.clear();
  for (const std::string& name : action.names)
    if (!exists(name) && waits_.size() < kMaxWaits) waits_.push_back({.name = name});
  const std::uint64_t left = action.until == 0 ? 0 : (action.until - now()) / kPerMillisecond + 1;
  return aici::PreResult::suspend_until(waits_, static_cast<std::uint32_t>(left));
}

bool Session::all_there() const {
  return std::all_of(action.names.begin(), action.names.end(), exists);
}

}  // namespace script
