#include "aici/detail/cfg/terminals.hpp"

#include <algorithm>
#include <utility>

#include "aici/utf8.hpp"

namespace aici::cfg {
namespace {

template <class... Ts>
struct Overload : Ts... {
  using Ts::operator()...;
};

}  // namespace

Terminal Terminals::add_literal(std::string_view bytes) {
  all_.emplace_back(Literal(bytes));
  return static_cast<Terminal>(all_.size() - 1);
}
Terminal Terminals::add_regex(std::shared_ptr<regex::Regex> regex, bool early) {
  if (!early) first_of_regex_.try_emplace(regex.get(), static_cast<Terminal>(all_.size()));
  all_.emplace_back(Pattern{std::move(regex), early});
  return static_cast<Terminal>(all_.size() - 1);
}
Terminal Terminals::add_substring(Substrings substrings) {
  all_.emplace_back(std::move(substrings));
  return static_cast<Terminal>(all_.size() - 1);
}
Terminal Terminals::add_except(Except except) {
  first_of_regex_.try_emplace(&except.regex(), static_cast<Terminal>(all_.size()));
  all_.emplace_back(std::move(except));
  return static_cast<Terminal>(all_.size() - 1);
}

Terminal Terminals::add_counted(Counted counted) {
  // the regex alone, as the twin of all counts
  if (!first_of_regex_.contains(&counted.regex())) add_regex(counted.shared_regex(), false);
  all_.emplace_back(std::move(counted));
  return static_cast<Terminal>(all_.size() - 1);
}

void Terminals::set_byte_classes(ByteClasses classes) {
  classes_ = classes.of;
  const auto set = [&](regex::Regex& regex) {
    const auto rare = regex.leave_out_rare();
    rare_.insert(rare_.end(), rare.begin(), rare.end());
    regex.set_byte_classes(classes);
  };
  for (auto& one : all_) {
    if (auto* pattern = std::get_if<Pattern>(&one)) set(*pattern->regex);
    if (auto* except = std::get_if<Except>(&one)) set(except->regex());
    if (auto* counted = std::get_if<Counted>(&one)) set(counted->regex());
  }
  std::ranges::sort(rare_);
  rare_.erase(std::unique(rare_.begin(), rare_.end()), rare_.end());
}

Terminals::State Terminals::initial(Terminal terminal) const {
  return std::visit(Overload{[](const Literal&) -> State { return 1; },
                             [](const Pattern& it) -> State { return it.regex->initial(); },
                             [](const Substrings& it) -> State { return it.initial(); },
                             [](const Except&) -> State { return 1; }, [](const Counted&) -> State { return 1; }},
                    all_[terminal]);
}

Terminals::State Terminals::append(Terminal terminal, State state, std::uint8_t byte) {
  if (state == kDead) return kDead;
  return std::visit(Overload{[&](const Literal& it) -> State {
                               const bool next = state <= it.size() && static_cast<std::uint8_t>(it[state - 1]) == byte;
                               return next ? state + 1 : kDead;
                             },
                             [&](const Pattern& it) -> State {
                               if (state == kStopped) return kDead;
                               const State next = it.regex->append(state, byte);
                               return it.early && it.regex->accepting(next) ? kStopped : next;
                             },
                             [&](const Substrings& it) -> State { return it.append(state, byte); },
                             [&](Except& it) -> State { return it.append(state, byte); },
                             [&](Counted& it) -> State { return it.append(state, byte); }},
                    all_[terminal]);
}

bool Terminals::accepting(Terminal terminal, State state) const {
  if (state == kDead) return false;
  return std::visit(
      Overload{[&](const Literal& it) { return state > it.size(); },
               [&](const Pattern& it) { return state == kStopped || (!it.early && it.regex->accepting(state)); },
               [&](const Substrings& it) { return it.accepting(state); },
               [&](const Except& it) { return it.accepting(state); },
               [&](const Counted& it) { return it.accepting(state); }},
      all_[terminal]);
}

bool Terminals::ended(Terminal terminal, State state) {
  if (state == kDead) return true;
  return std::visit(Overload{[&](const Literal& it) { return state > it.size(); },
                             [&](const Pattern& it) { return state == kStopped || it.regex->ended(state); },
                             [&](const Substrings& it) { return it.ended(state); },
                             [&](Except& it) { return it.ended(state); },
                             [&](Counted& it) { return it.ended(state); }},
                    all_[terminal]);
}

Signature Terminals::loop_signature(Terminal terminal, State state, std::uint32_t* length) const {
  if (const auto* counted = std::get_if<Counted>(&all_[terminal]))
    return state != kDead ? counted->loop_signature(state, length) : 0;
  const regex::Regex* regex = nullptr;
  if (const auto* pattern = std::get_if<Pattern>(&all_[terminal])) {
    if (!pattern->early && state != kDead) regex = pattern->regex.get();
  } else if (const auto* except = std::get_if<Except>(&all_[terminal])) {
    regex = except->free(state);
    state = except->regex_state(state);
  }
  if (regex == nullptr) return 0;
  *length = regex->loop_length(state);
  return regex->loop_signature(state);
}

Signature Terminals::multibyte_signature(Terminal terminal, State state) const {
  const auto* except = std::get_if<Except>(&all_[terminal]);
  if (except == nullptr || state == kDead || !except->free_after_multibyte(state)) return 0;
  const regex::Regex::State inside = except->regex_state(state);
  return except->regex().loop_length(inside) == kUnlimited ? except->regex().loop_signature(inside) : 0;
}

bool Terminals::well_formed() const {
  return std::ranges::all_of(all_, [](const auto& one) {
    const auto* literal = std::get_if<Literal>(&one);
    // a special token is not text
    return literal != nullptr ? literal->front() == kTokenMark || utf8_length(*literal) == literal->size() : !std::holds_alternative<Substrings>(one);
  });
}

Terminals::State Terminals::without_names(Terminal terminal, State state, ByteSet& differ) {
  if (const auto* literal = std::get_if<Literal>(&all_[terminal])) {
    if (state <= literal->size()) differ.add(static_cast<std::uint8_t>((*literal)[state - 1]));
    return kDead;
  }
  if (auto* except = std::get_if<Except>(&all_[terminal])) return except->without_names(state, differ);
  return state;
}

void Terminals::add_next_bytes(Terminal terminal, State state, ByteSet& bytes) const {
  if (const auto* literal = std::get_if<Literal>(&all_[terminal])) {
    if (state <= literal->size()) bytes.add(static_cast<std::uint8_t>((*literal)[state - 1]));
    return;
  }
  const auto* pattern = std::get_if<Pattern>(&all_[terminal]);
  const auto* except = std::get_if<Except>(&all_[terminal]);
  const auto* counted = std::get_if<Counted>(&all_[terminal]);
  if (pattern != nullptr && state != kStopped)
    pattern->regex->add_next_bytes(state, bytes);
  else if (except != nullptr)
    except->regex().add_next_bytes(except->regex_state(state), bytes);
  else if (counted != nullptr)
    counted->regex().add_next_bytes(counted->regex_state(state), bytes);
  else if (pattern == nullptr)
    bytes.add(ByteSet::all());
}

Terminals::Place Terminals::twin(Place own, std::uint32_t* length) {
  *length = kUnlimited;
  const regex::Regex* regex = nullptr;
  regex::Regex::State state = own.state;
  if (const auto* pattern = std::get_if<Pattern>(&all_[own.terminal])) {
    if (!pattern->early) regex = pattern->regex.get();
  } else if (const auto* except = std::get_if<Except>(&all_[own.terminal])) {
    regex = except->free(own.state);
    state = except->regex_state(own.state);
  } else if (const auto* counted = std::get_if<Counted>(&all_[own.terminal])) {
    *length = counted->free_length(own.state);
    state = counted->regex_state(own.state);
    regex = &counted->regex();
  }
  const auto first = first_of_regex_.find(regex);
  if (first == first_of_regex_.end()) return own;
  auto* except = std::get_if<Except>(&all_[first->second]);
  return {first->second, except != nullptr ? except->outside(state) : state};
}

const char* Terminals::failure() const {
  for (const auto& one : all_) {
    const auto* pattern = std::get_if<Pattern>(&one);
    const auto* except = std::get_if<Except>(&one);
    const auto* counted = std::get_if<Counted>(&one);
    if (const char* problem = pattern   ? pattern->regex->failure()
                              : except  ? except->failure()
                              : counted ? counted->failure()
                                        : nullptr)
      return problem;
  }
  return nullptr;
}

}  // namespace aici::cfg
