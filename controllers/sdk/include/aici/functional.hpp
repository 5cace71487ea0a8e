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
// The functions may fill caches of their own (a lazy automaton), but must always give the same answers.
// If `State` converts to std::uint32_t it is taken as the state's identity: masks are cached under it.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aici/recognizer.hpp"
#include "aici/types.hpp"

namespace aici {

/// What a functional recognizer must have:
///
///   State initial()                    the state before the first byte
///   State append(state, byte)          the state after `byte`. Called only where the byte is allowed,
///                                      except if `dead` exists: then it is called for every byte
///   bool byte_allowed(state, byte)     can a match still be reached after `byte`?
///   bool special_allowed(state, token) may this special token come now? `eos`: may the text end here?
template <class F>
concept FunctionalRecognizer =
    std::copyable<typename F::State> &&
    requires(F& f, typename F::State state, std::uint8_t byte, SpecialToken token) {
      { f.initial() } -> std::same_as<typename F::State>;
      { f.append(state, byte) } -> std::same_as<typename F::State>;
      { f.byte_allowed(state, byte) } -> std::same_as<bool>;
      { f.special_allowed(state, token) } -> std::same_as<bool>;
    };

/// Optional: is this a state from which no match can be reached? With it the walk makes one call per byte,
/// `append`, instead of two; `append` then is asked for forbidden bytes too and answers with a dead state.
template <class F>
concept HasDead = requires(F& f, typename F::State state) {
  { f.dead(state) } -> std::same_as<bool>;
};

/// Optional: signature bits such that, from `state`, every string made only of bytes of these bits is
/// allowed. (Enough for that: each byte of each such class leads back to `state`. A state from which all
/// of them lead to such a state qualifies too.) kWellFormedUtf8 stands for all multi-byte characters of
/// well-formed UTF-8; kOtherBytes for all bytes from 0x80 on in any order, so it implies kWellFormedUtf8.
/// Subtrees of tokens within this set are taken without a look. 0 is always right; signature.hpp has
/// `find_loop_signature`, which finds a good answer for any functional recognizer. Asked once per
/// state that the walk descends into, so it has to be remembered.
template <class F>
concept HasLoopSignature = requires(F& f, typename F::State state) {
  { f.loop_signature(state) } -> std::same_as<Signature>;
};

/// Optional, with `loop_signature`: the most bytes of a string for which it holds, kUnlimited if any number. So
/// a state that counts (`.{0,50}`) has a loop too, as far as it counts.
template <class F>
concept HasLoopLength = HasLoopSignature<F> && requires(F& f, typename F::State state) {
  { f.loop_length(state) } -> std::same_as<std::uint32_t>;
};
inline constexpr std::uint32_t kUnlimited = 0xffffffff;

/// Optional: if exactly one byte is possible and the text may not end here, stores it and says true.
template <class F>
concept HasForcedByte = requires(F& f, typename F::State state, std::uint8_t* byte) {
  { f.forced_byte(state, byte) } -> std::same_as<bool>;
};

/// Optional: a recognizer that makes its states on demand may drop those it no longer needs. Called between
/// two masks with the present state, which may get a new number then; true: all other states are void.
template <class F>
concept HasCompact = requires(F& f, typename F::State* state) {
  { f.compact(state) } -> std::same_as<bool>;
};

/// Optional: why the answers given so far are not to be used (a limit was met), or null. Asked after a mask.
template <class F>
concept HasFailure = requires(const F& f) {
  { f.failure() } -> std::same_as<const char*>;
};

/// Optional: all the texts that match. With them a constraint lets a model write a text only as the tokens that
/// its tokenizer makes of it (spelling.hpp), if the host has the model's own (Capability::tokenizer).
template <class F>
concept HasTexts = requires(const F& f) {
  { f.texts() } -> std::convertible_to<std::span<const std::string>>;
};

/// One step: stores the next state and says true if `byte` is allowed.
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

/// `forced_byte` of the recognizer, or by asking for all 256 bytes.
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

/// Makes a byte stack of a functional recognizer.
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
    requires HasLoopSignature<F>
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
