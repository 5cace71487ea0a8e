// regex.hpp - a regular expression as a functional recognizer.
//
//   aici::regex::Regex regex = aici::regex::compile_or_fail("[a-z]+@[a-z]+");
//   Regex::State s = regex.initial();
//   s = regex.append(s, 'a');
//
// The text must match from its first to its last byte. docs/regex.md describes the syntax.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "aici/detail/containers.hpp"
#include "aici/detail/regex/automaton.hpp"
#include "aici/functional.hpp"
#include "aici/regex/limits.hpp"
#include "aici/signature.hpp"

namespace aici::regex {

class Ast;
class Parser;

/// A compiled regular expression. It is small and cheap to move, since the automaton is on the heap.
class Regex {
 public:
  /// A state of the automaton. 0 is dead. Equal numbers are equal states, until `compact` drops all states.
  using State = Automaton::State;

  /// Returns nothing and fills in `error` if the pattern is malformed, exceeds a limit, or matches no text.
  static std::optional<Regex> compile(std::string_view pattern, Error* error, const Limits& limits = {});

  /// As `compile`, for a lexeme in a longer text. Without a lazy repetition, every text that matches is one. Otherwise
  /// the pattern decides where the lexeme ends, as in Python's `re`: a text is one if a search for the pattern at its
  /// start ends at its end, whatever may follow. So the longest lexeme in a text is what `re` finds there. Refuses lazy
  /// repetitions beside anchors, look-arounds and (?not:...), and look-arounds that look at what surrounds the lexeme.
  /// Without `lazy`, no repetition is lazy: `a*?` is `(a*)?`, as in flex.
  static std::optional<Regex> lexeme(std::string_view pattern, bool lazy, Error* error, const Limits& limits = {});

  /// Matches every text that ends at the first occurrence of one of `stops`, as (?until:...) does. The stops must be
  /// nonempty UTF-8.
  static std::optional<Regex> until(std::span<const std::string> stops, Error* error,
                                    const Limits& limits = {});

  /// Matches every nonempty text in which no part matches the pattern. `^` is the start of the text. `$` has no effect,
  /// since any text may follow.
  static std::optional<Regex> without(std::string_view pattern, Error* error, const Limits& limits = {});

  /// Sets the vocabulary's byte classes; without them `loop_signature` returns 0.
  void set_byte_classes(ByteClasses classes) { automaton_->set_byte_classes(classes); }

  /// Makes kWellFormedUtf8 in `loop_signature` stand for all characters but those that are returned: a few that the
  /// pattern treats in another way. Call it before `set_byte_classes`.
  std::span<const std::uint32_t> leave_out_rare() { return automaton_->leave_out_rare(); }

  State initial() const { return automaton_->initial(); }
  State append(State state, std::uint8_t byte) const { return automaton_->append(state, byte); }
  bool byte_allowed(State state, std::uint8_t byte) const { return append(state, byte) != Automaton::kDead; }
  bool special_allowed(State state, SpecialToken token) const {
    return token == SpecialToken::eos && automaton_->accepting(state);
  }
  bool dead(State state) const { return state == Automaton::kDead; }
  bool accepting(State state) const { return automaton_->accepting(state); }
  /// Returns whether the state is within a character. Bytes from 0x80 to 0xBF can follow there, and only there.
  bool within_character(State state) const { return Automaton::within_character(state); }
  /// Returns whether no byte can follow; true for the dead state.
  bool ended(State state) const { return automaton_->ended(state); }
  Signature loop_signature(State state) const { return automaton_->loop_signature(state); }
  std::uint32_t loop_length(State state) const { return automaton_->loop_length(state); }
  /// An expression is over characters.
  bool well_formed() const { return true; }
  /// Adds the bytes that may follow, and perhaps others from 0x80 on.
  void add_next_bytes(State state, ByteSet& bytes) const { automaton_->add_next_bytes(state, bytes); }
  bool forced_byte(State state, std::uint8_t* byte) const { return automaton_->forced_byte(state, byte); }

  /// Set when the automaton has reached Limits::automaton_bytes; answers since then are too strict.
  const char* failure() const {
    return automaton_->exhausted() ? "the regular expression needs too much memory for one mask" : nullptr;
  }
  /// Call between masks. If the states take too much memory, drops all of them but *state, which gets a new number, and
  /// returns true: all old numbers are then invalid.
  bool compact(State* state) { return automaton_->compact(state); }
  /// Return the memory and the number of the states built so far.
  std::size_t bytes() const { return automaton_->bytes(); }
  std::uint32_t num_states() const { return automaton_->num_states(); }

 private:
  friend std::optional<Regex> make_regex(Ast* ast, const Limits& limits, Parser* parser, Error* error, bool ordered);
  explicit Regex(std::unique_ptr<Automaton> automaton) : automaton_(std::move(automaton)) {}

  std::unique_ptr<Automaton> automaton_;
};

/// Calls `Regex::compile` and prepares the result for fast masks with this controller's vocabulary; for controllers'
/// constructors. An invalid pattern refuses the request with a message that gives position and reason.
Regex compile_or_fail(std::string_view pattern, const Limits& limits = {});
/// As above, with `Regex::until`.
Regex until_or_fail(std::span<const std::string> stops, const Limits& limits = {});

static_assert(FunctionalRecognizer<Regex> && HasDead<Regex> && HasForcedByte<Regex>);
static_assert(HasLoopSignature<Regex> && HasLoopLength<Regex> && HasCompact<Regex> && HasFailure<Regex>);
static_assert(HasWellFormed<Regex>);

}  // namespace aici::regex
