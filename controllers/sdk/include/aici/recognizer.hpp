// recognizer.hpp - the byte stack interface: a constraint on text, asked byte by byte.
//
// The trie walk (bias.hpp) goes through all tokens at once: it pushes the bytes that lead down and pops
// those that lead back up. Implement this for constraints whose state is large or shared (LR, Earley).
// Where a state is a small value, implement a functional recognizer (functional.hpp): it is less work and
// faster.
#pragma once

#include <concepts>
#include <cstdint>

#include "aici/types.hpp"

namespace aici {

/// A recognizer holds a stack of states. What it must have:
///
///   void push_byte(b)          if the top state goes by `b` to X: push X. Called only where `b` is allowed.
///   void pop_bytes(n)          pop n states
///   void collapse()            drop all states below the top: bytes that were pushed are final now
///   bool byte_allowed(b)       does the top state go by `b` to one from which a match can be reached?
///   bool special_allowed(t)    the same for a special token; `eos`: may the text end here?
///   void trie_finished()       the walk is over; the stack is as high as when it began
///   bool try_push_byte(b)      byte_allowed and push_byte in one
template <class R>
concept ByteStack = requires(R& r, std::uint8_t byte, std::uint32_t count, SpecialToken token) {
  r.push_byte(byte);
  r.pop_bytes(count);
  r.collapse();
  { r.byte_allowed(byte) } -> std::same_as<bool>;
  { r.special_allowed(token) } -> std::same_as<bool>;
  r.trie_finished();
  { r.try_push_byte(byte) } -> std::same_as<bool>;
};

/// Optional for a ByteStack, see `HasLoopSignature` in functional.hpp: the same, of the top state.
template <class R>
concept StackLoopSignature = requires(R& r) {
  { r.loop_signature() } -> std::same_as<Signature>;
};

/// Optional for a ByteStack: if exactly one byte is possible and the text may not end here, stores it.
template <class R>
concept StackForcedByte = requires(R& r, std::uint8_t* byte) {
  { r.forced_byte(byte) } -> std::same_as<bool>;
};

/// Optional for a ByteStack: a number that is equal only for states that allow the same continuations.
/// Masks are cached under it. 0 = this state has no number.
template <class R>
concept StackStateKey = requires(R& r) {
  { r.state_key() } -> std::same_as<std::uint64_t>;
};

/// Optional for a ByteStack: goes back to the state before the first byte, which is then alone on the stack. Of one
/// that cannot do that a Constraint never collapses the stack, so that it can be popped: it grows with the text.
template <class R>
concept StackRestart = requires(R& r) { r.restart(); };

/// The same as a base class. Everything that takes a ByteStack takes it; a `final` class that derives from it is
/// walked without virtual calls. (To choose a constraint at run time: any_constraint.hpp.)
class Recognizer {
 public:
  virtual ~Recognizer() = default;
  virtual void push_byte(std::uint8_t byte) = 0;
  virtual void pop_bytes(std::uint32_t count) = 0;
  virtual void collapse() = 0;
  virtual bool byte_allowed(std::uint8_t byte) = 0;
  virtual bool special_allowed(SpecialToken token) = 0;
  virtual void trie_finished() {}
  virtual bool try_push_byte(std::uint8_t byte) {
    if (!byte_allowed(byte)) return false;
    push_byte(byte);
    return true;
  }
};

static_assert(ByteStack<Recognizer>);

}  // namespace aici
