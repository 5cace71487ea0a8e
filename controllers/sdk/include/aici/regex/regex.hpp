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

#include "aici/functional.hpp"
#include "aici/regex/automaton.hpp"
#include "aici/regex/error.hpp"
#include "aici/regex/limits.hpp"
#include "aici/signature.hpp"

namespace aici::regex {

/// Small and cheap to move: the automaton is on the heap.
class Regex {
 public:
  /// A state of the automaton. 0 is dead; equal numbers mean equal states, until `compact` drops them all.
  using State = Automaton::State;

  /// Nothing, and `error` filled in if the pattern is refused: it is malformed, beyond a limit, or matches no text.
  static std::optional<Regex> compile(std::string_view pattern, Error* error, const Limits& limits = {});

  /// Every text that ends where one of `stops` occurs first: the pattern (?until:...) of these texts, which must
  /// be UTF-8 and not empty.
  static std::optional<Regex> until(std::span<const std::string> stops, Error* error,
                                    const Limits& limits = {});

  /// The complement: every text but the empty one in which no part matches. `^` is the start of the text, `$` its end
  /// as far as it has come: anything may follow, so it changes nothing.
  static std::optional<Regex> without(std::string_view pattern, Error* error, const Limits& limits = {});

  /// Lets `loop_signature` answer: without the classes of the vocabulary it says 0.
  void set_byte_classes(ByteClasses classes) { automaton_->set_byte_classes(classes); }

  State initial() const { return automaton_->initial(); }
  State append(State state, std::uint8_t byte) const { return automaton_->append(state, byte); }
  bool byte_allowed(State state, std::uint8_t byte) const { return append(state, byte) != Automaton::kDead; }
  bool special_allowed(State state, SpecialToken token) const {
    return token == SpecialToken::eos && automaton_->accepting(state);
  }
  bool dead(State state) const { return state == Automaton::kDead; }
  bool accepting(State state) const { return automaton_->accepting(state); }
  /// Is this between the bytes of a character? Only bytes from 0x80 to 0xBF can follow there, and none of these
  /// anywhere else.
  bool within_character(State state) const { return Automaton::within_character(state); }
  /// Can no byte follow? (The dead state has ended.)
  bool ended(State state) const { return automaton_->ended(state); }
  Signature loop_signature(State state) const { return automaton_->loop_signature(state); }
  std::uint32_t loop_length(State state) const { return automaton_->loop_length(state); }
  bool forced_byte(State state, std::uint8_t* byte) const { return automaton_->forced_byte(state, byte); }

  /// Set when the automaton has met Limits::automaton_bytes: answers since then are too strict.
  const char* failure() const {
    return automaton_->exhausted() ? "the regular expression needs too much memory for one mask" : nullptr;
  }
  /// To be called between masks. If the states take too much memory, drops them all but *state, which gets
  /// a new number, and says true: what is remembered under old numbers is void.
  bool compact(State* state) { return automaton_->compact(state); }
  /// Memory and number of the states that have been made.
  std::size_t bytes() const { return automaton_->bytes(); }
  std::uint32_t num_states() const { return automaton_->num_states(); }

 private:
  explicit Regex(std::unique_ptr<Automaton> automaton) : automaton_(std::move(automaton)) {}

  std::unique_ptr<Automaton> automaton_;
};

/// For constructors of controllers: `Regex::compile`, ready for quick masks with this controller's vocabulary. A
/// pattern that is refused refuses the request, with a message that says where and what is wrong.
Regex compile_or_fail(std::string_view pattern, const Limits& limits = {});
/// The same with `Regex::until`.
Regex until_or_fail(std::span<const std::string> stops, const Limits& limits = {});

static_assert(FunctionalRecognizer<Regex> && HasDead<Regex> && HasForcedByte<Regex>);
static_assert(HasLoopSignature<Regex> && HasLoopLength<Regex> && HasCompact<Regex> && HasFailure<Regex>);

}  // namespace aici::regex
