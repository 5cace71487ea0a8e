// functional.hpp - the functional byte interface: a constraint as a pure function of small states.
//
//   struct Digits {
//     using State = std::uint32_t;
//     State initial() const { return 0; }
//     State append(State, std::uint8_t) const { return 1; }
//     bool byte_allowed(State, std::uint8_t b) const { return b >= '0' && b <= '9'; }
//     bool special_allowed(State s, aici::SpecialToken t) const { return t == aici::SpecialToken::eos && s == 1; }
//   };
//
// The functions may fill their own caches (a lazy automaton), but must always return the same answers. If `State`
// converts to std::uint32_t, this number identifies the state, and masks are cached under it.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/recognizer.hpp"
#include "aici/types.hpp"

namespace aici {

/// Required functions of a functional recognizer:
///
///   State initial()                    the state before the first byte
///   State append(state, byte)          the state after `byte`. Called only if the byte is allowed;
///                                      if `dead` exists, called for every byte
///   bool byte_allowed(state, byte)     can a match still be reached after `byte`?
///   bool special_allowed(state, token) is this special token allowed? `eos`: may the text end here?
template <class F>
concept FunctionalRecognizer =
    std::copyable<typename F::State> &&
    requires(F& f, typename F::State state, std::uint8_t byte, SpecialToken token) {
      { f.initial() } -> std::same_as<typename F::State>;
      { f.append(state, byte) } -> std::same_as<typename F::State>;
      { f.byte_allowed(state, byte) } -> std::same_as<bool>;
      { f.special_allowed(state, token) } -> std::same_as<bool>;
    };

/// Optional: returns whether no match can be reached from this state. With it, the walk makes one call per byte,
/// `append`, instead of two. For a forbidden byte, `append` then returns a dead state.
template <class F>
concept HasDead = requires(F& f, typename F::State state) {
  { f.dead(state) } -> std::same_as<bool>;
};

/// Optional: returns signature bits such that `state` allows every string of bytes of these classes. (A sufficient
/// condition: each byte of these classes leads back to `state`, or to a state for which this holds.)
///
/// kWellFormedUtf8 stands for all multi-byte characters of well-formed UTF-8. kOtherBytes stands for all bytes from
/// 0x80 on in any order, so it implies kWellFormedUtf8. The walk takes subtrees with only these classes as a whole. 0
/// is always correct; `find_loop_signature` (signature.hpp) computes a good answer for any functional recognizer. The
/// walk calls this function once for each state that it descends into, so cache the answer.
template <class F>
concept HasLoopSignature = requires(F& f, typename F::State state) {
  { f.loop_signature(state) } -> std::same_as<Signature>;
};

/// Optional, with `loop_signature`: returns the maximum length in bytes for which the signature holds, or kUnlimited.
/// So a state that counts (`.{0,50}`) has a loop, too, of limited length.
template <class F>
concept HasLoopLength = HasLoopSignature<F> && requires(F& f, typename F::State state) {
  { f.loop_length(state) } -> std::same_as<std::uint32_t>;
};
inline constexpr std::uint32_t kUnlimited = 0xffffffff;

/// Optional, with `loop_signature`: returns classes, any text of which may follow if it begins with a character of
/// several bytes. Where only some ASCII characters lead elsewhere, it saves the walk below all others.
template <class F>
concept HasMultibyteSignature = HasLoopSignature<F> && requires(F& f, typename F::State state) {
  { f.multibyte_signature(state) } -> std::same_as<Signature>;
};

/// Optional, with `loop_signature`: returns whether all allowed texts are beginnings of well-formed UTF-8. The walk then
/// skips tokens that are not, where characters of several bytes may follow.
template <class F>
concept HasWellFormed = HasLoopSignature<F> && requires(const F& f) {
  { f.well_formed() } -> std::same_as<bool>;
};

/// Optional, with `loop_signature`: returns the nodes of the trie, sorted, that end characters which kWellFormedUtf8 does
/// not stand for. So a state has a loop, too, if all but a few characters lead back to it, as with `\S` and `\s`.
template <class F>
concept HasRareNodes = HasLoopSignature<F> && requires(F& f) {
  { f.rare_nodes() } -> std::same_as<std::span<const std::uint32_t>>;
};

/// Optional: returns the bytes that may follow, and perhaps others. It saves the walk from trying all of them.
template <class F>
concept HasNextBytes = requires(F& f, typename F::State state) {
  { f.next_bytes(state) } -> std::convertible_to<const ByteSet&>;
};

/// Optional: if exactly one byte is possible and the text may not end here, stores it and returns true.
template <class F>
concept HasForcedByte = requires(F& f, typename F::State state, std::uint8_t* byte) {
  { f.forced_byte(state, byte) } -> std::same_as<bool>;
};

/// Optional: lets a recognizer that builds its states lazily drop states that it no longer needs. Called between two
/// masks with the current state, which may get a new number. Returns true if all other states have become invalid.
/// `bytes` is the memory of the states.
template <class F>
concept HasCompact = requires(F& f, typename F::State* state) {
  { f.compact(state) } -> std::same_as<bool>;
  { f.bytes() } -> std::convertible_to<std::size_t>;
};

/// Optional: returns why the answers so far are invalid (a limit was reached), or null. Called after each mask.
template <class F>
concept HasFailure = requires(const F& f) {
  { f.failure() } -> std::same_as<const char*>;
};

/// Optional: returns all texts that match. A constraint then allows each text only as the tokens from the model's
/// tokenizer, if the host has it (Capability::tokenizer).
template <class F>
concept HasTexts = requires(const F& f) {
  { f.texts() } -> std::convertible_to<std::span<const std::string>>;
};

/// Optional: returns the special tokens that may be part of a text, such as a mark of the chat format. The recognizer
/// reads each as the bytes `token_bytes`. No text has these bytes: a constraint forbids tokens of text with kTokenMark.
template <class F>
concept HasTokens = requires(const F& f) {
  { f.tokens() } -> std::same_as<std::span<const TokenId>>;
};
inline constexpr char kTokenMark = '\xff';
inline std::string token_bytes(TokenId token) {
  std::string bytes(1, kTokenMark);
  for (int bits = 18; bits >= 0; bits -= 6) bytes += static_cast<char>(0x80 | (token >> bits & 63));
  return bytes;
}

/// Optional: returns the temperature at which to sample the next token, as in MidResult::with_temperature; 0 for that of
/// the request.
template <class F>
concept HasTemperature = requires(F& f, typename F::State state) {
  { f.temperature(state) } -> std::same_as<float>;
};

/// A part of a text, by the name that the grammar gives it.
struct Capture {
  std::string name, text;
  bool operator==(const Capture&) const = default;
};

/// Optional: returns the captures of a complete text, in the order of their ends.
template <class F>
concept HasCaptures = requires(F& f, std::string_view text) {
  { f.has_captures() } -> std::same_as<bool>;
  { f.captures(text) } -> std::same_as<std::vector<Capture>>;
};

/// Stores the state after `byte` and returns true if the byte is allowed.
template <FunctionalRecognizer F>
inline bool try_append(F& f, typename F::State state, std::uint8_t byte, typename F::State* next) {
  if constexpr (HasDead<F>) {
    *next = f.append(state, byte);
    return !f.dead(*next);
  } else {
    if (!f.byte_allowed(state, byte)) return false;
    *next = f.append(state, byte);
    return true;
  }
}

/// Calls `forced_byte` of the recognizer; without it, tries all 256 bytes.
template <FunctionalRecognizer F>
bool forced_byte(F& f, typename F::State state, std::uint8_t* byte) {
  if constexpr (HasForcedByte<F>) {
    return f.forced_byte(state, byte);
  } else {
    if (f.special_allowed(state, SpecialToken::eos)) return false;
    int found = -1;
    for (int b = 0; b < 256; b++) {
      if (!f.byte_allowed(state, static_cast<std::uint8_t>(b))) continue;
      if (found >= 0) return false;
      found = b;
    }
    *byte = static_cast<std::uint8_t>(found);
    return found >= 0;
  }
}

/// A byte stack made from a functional recognizer.
template <FunctionalRecognizer F>
class StackRecognizer final : public Recognizer {
 public:
  using State = typename F::State;

  explicit StackRecognizer(F recognizer) : f_(std::move(recognizer)) {
    stack_.reserve(256);  // the trie is at most 254 deep
    stack_.push_back(f_.initial());
  }

  void push_byte(std::uint8_t byte) override { stack_.push_back(f_.append(stack_.back(), byte)); }
  void pop_bytes(std::uint32_t count) override { stack_.resize(stack_.size() - count, stack_.back()); }
  void collapse() override {
    stack_.front() = stack_.back();
    stack_.resize(1, stack_.back());
  }
  void restart() { stack_.assign(1, f_.initial()); }
  bool byte_allowed(std::uint8_t byte) override { return f_.byte_allowed(stack_.back(), byte); }
  bool special_allowed(SpecialToken token) override { return f_.special_allowed(stack_.back(), token); }
  bool try_push_byte(std::uint8_t byte) override {
    State next = stack_.back();
    if (!try_append(f_, stack_.back(), byte, &next)) return false;
    stack_.push_back(next);
    return true;
  }

  Signature loop_signature()
    requires(HasLoopSignature<F> && !HasRareNodes<F>)
  {
    return f_.loop_signature(stack_.back());
  }
  bool forced_byte(std::uint8_t* byte) { return aici::forced_byte(f_, stack_.back(), byte); }
  decltype(auto) texts() const
    requires HasTexts<F>
  {
    return f_.texts();
  }

  F& recognizer() { return f_; }
  State top() const { return stack_.back(); }

 private:
  F f_;
  std::vector<State> stack_;
};

}  // namespace aici
