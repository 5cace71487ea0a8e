// recognizer.hpp - the byte stack interface: a constraint on text, byte by byte.
//
// The trie walk (bias.hpp) visits all tokens: it pushes a byte on the way down and pops it on the way up. Implement
// this interface for constraints with large or shared states (LR, Earley). If a state is a small value, implement a
// functional recognizer (functional.hpp), which is simpler and faster.
#pragma once

#include <concepts>
#include <cstdint>

#include "aici/types.hpp"

namespace aici {

/// A recognizer with a stack of states. Required functions:
///
///   void push_byte(b)          push the state after the top state and `b`. Called only if `b` is allowed.
///   void pop_bytes(n)          pop n states
///   void collapse()            drop all states below the top: pushed bytes are final
///   bool byte_allowed(b)       can a match be reached after `b`?
///   bool special_allowed(t)    the same for a special token; `eos`: may the text end here?
///   void trie_finished()       the walk has ended; the stack is as high as at its start
///   bool try_push_byte(b)      byte_allowed and, if so, push_byte
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

/// Optional for a ByteStack: `HasLoopSignature` of functional.hpp, for the top state.
template <class R>
concept StackLoopSignature = requires(R& r) {
  { r.loop_signature() } -> std::same_as<Signature>;
};

/// Optional for a ByteStack: if exactly one byte is possible and the text may not end here, stores it and returns true.
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

/// Optional for a ByteStack: returns to the initial state, as the only one on the stack. Without it, a Constraint never
/// collapses the stack, so that it can pop all bytes; the stack then grows with the text.
template <class R>
concept StackRestart = requires(R& r) { r.restart(); };

/// ByteStack as a base class. The walk of a `final` class derived from it makes no virtual calls. (To choose a
/// constraint at run time, see any_constraint.hpp.)
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
