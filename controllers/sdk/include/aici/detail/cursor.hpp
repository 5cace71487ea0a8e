// cursor.hpp - a recognizer with its current state, and the tokens of the text that it forces.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/bias.hpp"
#include "aici/detail/answer_cache.hpp"
#include "aici/detail/containers.hpp"
#include "aici/functional.hpp"
#include "aici/recognizer.hpp"
#include "aici/signature.hpp"
#include "aici/token_set.hpp"
#include "aici/types.hpp"
#include "aici/vocabulary.hpp"

namespace aici {

// If a constraint forces the bytes F, they can be appended at once instead of sampled token by token. The question is
// which tokens to append. A model knows text in the way in which its tokenizer splits it ("canonical"), and this way
// may depend on the text that follows: F = `{"na` and a later `me":` may contain the token `name`. Therefore:
//
//   A token of F is settled if it is in the canonical tokens of F + X for every X that may follow.
//   Settled tokens are spliced. The rest of F is sampled under masks that force its bytes.
//
// To find the settled tokens: in the tokens of F + X at most one token U lies over the edge between F
// and X; it consists of F's last bytes, from offset j on, and at least one byte of X. Where the tokens of a
// text meet, byte pair encoding, Unigram and longest match split both sides as if they stood alone: the
// tokens before U are those of F[0 .. j]. So only those j matter where F[j ..] is the beginning of a longer
// token that goes on with a byte which may follow; the vocabulary's trie tells. The settled tokens are the
// common beginning of tokenize(F) and of tokenize(F[0 .. j]) for each such j. (If j is inside a
// character, F[0 .. j] is no text; then the token before U ends at j too, and its possible starts take j's
// place.)
//
// Most tokenizers first cut text into words, by a pattern that may look ahead (`\s+(?!\S)`), so that the
// split of F's end can change without a token over the edge. Therefore F is also tokenized with a sample
// after it of every kind of text that may follow, going by its first byte, and the common beginning is taken
// of these too.
//
// If nothing may follow F, all of its tokens are settled.
//
// An engine that takes no ff_tokens gets settled tokens too, but one at a time, each as the only token that
// may be sampled. If the host has no exact tokenizer for the model (Capability::tokenizer), nothing is forced.

struct ForcedText {
  /// More forced text than this is handled in several parts.
  static constexpr std::size_t kMax = 512;

  std::string bytes;
  ByteSet next;  ///< bytes that may come after it
};

/// The settled tokens of forced text, in order. Asks the host's tokenizer, about twenty times.
std::vector<TokenId> settled_tokens(ForcedText text);

// A text can be written as tokens in many ways. A model has learned one of them, that of its tokenizer ("canonical"),
// and performs badly with others. For example, a model that may answer " London" or " Paris", but prefers another
// answer, takes the token " " first, which fits any answer. After " ", it has never seen "London" as a token, so its
// choice means little. Therefore, if the texts of a constraint are known, the tokenizer is called once for each of
// them, and only these tokens are allowed.
//
// Each text is tokenized by itself. The text before it does not matter, since its tokens are already fixed, and no
// token extends beyond its end.

/// The texts that have the tokens so far as a prefix.
class Spelling {
 public:
  /// Longer texts, in bytes, are not tokenized at once.
  static constexpr std::size_t kMax = 4096;

  /// Knows no text.
  Spelling() = default;
  /// Asks the host's tokenizer for each text, which takes some 20 us: ten thousands of them fill a
  /// constructor's second. Knows none if one of them is too long. Fails if the vocabulary cannot spell one.
  explicit Spelling(std::span<const std::string> texts);

  /// Returns whether the tokens so far are a prefix of canonical tokens.
  bool known() const { return num_left_ != 0; }
  void append(TokenId token);
  /// Returns to the state without tokens.
  void restart();
  /// What may come, if it is known: the tokens that all texts go on with, or a mask of their next ones. Valid
  /// until the next call; a mask lies in `scratch`.
  Answer next(TokenSet& scratch) const;

 private:
  /// Offsets in `tokens_`.
  struct Text {
    std::uint32_t begin, end;
  };
  std::span<const TokenId> rest(std::size_t text) const {
    return {tokens_.data() + texts_[text].begin + length_, tokens_.data() + texts_[text].end};
  }

  std::vector<TokenId> tokens_;
  /// The first `num_left_` are those that the tokens so far are a beginning of.
  std::vector<Text> texts_;
  std::size_t num_left_ = 0;
  /// Tokens so far.
  std::uint32_t length_ = 0;
};

namespace detail {
/// Replaces Spelling for recognizers that cannot list their texts.
struct NoSpelling {
  static constexpr bool known() { return false; }
  static void append(TokenId) {}
  static void restart() {}
  static Answer next(TokenSet&) { return {}; }
};
}  // namespace detail

}  // namespace aici

namespace aici::detail {

template <class R>
class Cursor;

template <FunctionalRecognizer F>
class Cursor<F> {
 public:
  using State = typename F::State;
  explicit Cursor(F f) : f_(std::move(f)), state_(f_.initial()) {}

  bool append(std::string_view text) {
    if constexpr (HasTokens<F>)
      if (!f_.tokens().empty() && text.find(kTokenMark) != std::string_view::npos) return false;
    return follow(text);
  }
  /// Appends a special token, if it is allowed (HasTokens).
  bool append_token(TokenId token) {
    if constexpr (HasTokens<F>) {
      const State here = state_;
      if (std::ranges::find(f_.tokens(), token) != f_.tokens().end() && follow(token_bytes(token))) return true;
      state_ = here;
    }
    return false;
  }
  /// Returns whether earlier keys have become invalid.
  bool compact() {
    if constexpr (HasCompact<F>)
      return f_.compact(&state_);
    else
      return false;
  }
  const char* failure() const {
    if constexpr (HasFailure<F>)
      return f_.failure();
    else
      return nullptr;
  }
  /// Moves to the state to which most bytes lead, if any byte is allowed.
  bool follow_most() {
    if constexpr (std::equality_comparable<State>)
      return detail::favourite(f_, state_, &state_);
    else
      return false;
  }
  void back_to_start() { state_ = f_.initial(); }
  State state() const { return state_; }
  void go_to(State state) { state_ = state; }
  bool special_allowed(SpecialToken which) { return f_.special_allowed(state_, which); }
  /// Returns the length of the longest allowed prefix of `text` after which the text may end; 0 if there is none.
  std::size_t longest_end(std::string_view text) {
    std::size_t end = 0;
    State at = state_;
    for (std::size_t i = 0; i < text.size(); i++) {
      if (State next = at; try_append(f_, at, static_cast<std::uint8_t>(text[i]), &next))
        at = next;
      else
        break;
      if (f_.special_allowed(at, SpecialToken::eos)) end = i + 1;
    }
    return end;
  }
  /// Returns whether a special token of HasTokens is allowed.
  bool compute_bias(TokenSet& out) {
    aici::compute_bias(f_, state_, out);
    bool any = false;
    if constexpr (HasTokens<F>) {
      if (f_.tokens().empty()) return false;
      const Vocabulary& vocab = vocabulary();
      if (marked_.empty())
        for (TokenId token = 0; token < vocab.size(); token++)
          if (!vocab.is_special(token) && vocab.token(token).find(kTokenMark) != std::string_view::npos)
            marked_.push_back(token);
      for (const TokenId token : marked_) out.forbid(token);
      const State here = state_;
      for (const TokenId token : f_.tokens())
        if (append_token(token)) out.allow(token), any = true, state_ = here;
    }
    return any;
  }
  /// Returns the temperature for the next token; 0 for that of the request.
  float temperature() {
    if constexpr (HasTemperature<F>)
      return f_.temperature(state_);
    else
      return 0;
  }
  /// Returns the key of the state; 0 if it has none.
  std::uint64_t key() const {
    if constexpr (std::convertible_to<State, std::uint32_t>)
      return static_cast<std::uint64_t>(static_cast<std::uint32_t>(state_)) + 1;
    else
      return 0;
  }
  ForcedText forced_text() {
    ForcedText text;
    State at = state_;
    std::uint8_t byte = 0;
    while (text.bytes.size() < ForcedText::kMax && aici::forced_byte(f_, at, &byte)) {
      if constexpr (HasTokens<F>)
        if (!f_.tokens().empty() && static_cast<char>(byte) == kTokenMark) break;
      text.bytes.push_back(static_cast<char>(byte));
      at = f_.append(at, byte);
    }
    if (!text.bytes.empty())
      for (unsigned b = 0; b < 256; b++)
        if (State next = at; try_append(f_, at, static_cast<std::uint8_t>(b), &next))
          text.next.add(static_cast<std::uint8_t>(b));
    return text;
  }
  F& recognizer() { return f_; }

 private:
  bool follow(std::string_view text) {
    for (char byte : text)
      if (State next = state_; try_append(f_, state_, static_cast<std::uint8_t>(byte), &next))
        state_ = next;
      else
        return false;
    return true;
  }

  F f_;
  State state_;
  /// Tokens of text with kTokenMark, if the recognizer has special tokens.
  std::vector<TokenId> marked_;
};

template <ByteStack R>
  requires(!FunctionalRecognizer<R>)
class Cursor<R> {
 public:
  explicit Cursor(R r) : r_(std::move(r)) {}

  bool append(std::string_view text) {
    for (char byte : text)
      if (r_.try_push_byte(static_cast<std::uint8_t>(byte)))
        height_++;
      else
        return false;
    if constexpr (StackRestart<R>) r_.collapse();
    return true;
  }
  void back_to_start() {
    if constexpr (StackRestart<R>)
      r_.restart();
    else if (height_ != 0)
      r_.pop_bytes(height_);
    height_ = 0;
  }
  bool compact() { return false; }
  const char* failure() const { return nullptr; }
  bool special_allowed(SpecialToken which) { return r_.special_allowed(which); }
  std::size_t longest_end(std::string_view text) {
    std::size_t end = 0;
    std::uint32_t pushed = 0;
    for (; pushed < text.size() && r_.try_push_byte(static_cast<std::uint8_t>(text[pushed])); pushed++)
      if (r_.special_allowed(SpecialToken::eos)) end = pushed + 1;
    r_.pop_bytes(pushed);
    r_.trie_finished();
    return end;
  }
  bool append_token(TokenId) { return false; }
  bool compute_bias(TokenSet& out) {
    aici::compute_bias(r_, out);
    return false;
  }
  float temperature() { return 0; }
  std::uint64_t key() {
    if constexpr (StackStateKey<R>)
      return r_.state_key();
    else
      return 0;
  }
  ForcedText forced_text() {
    ForcedText text;
    std::uint8_t byte = 0;
    while (text.bytes.size() < ForcedText::kMax && forced_byte(&byte)) {
      text.bytes.push_back(static_cast<char>(byte));
      r_.push_byte(byte);
    }
    if (text.bytes.empty()) return text;
    for (unsigned b = 0; b < 256; b++)
      if (r_.byte_allowed(static_cast<std::uint8_t>(b))) text.next.add(static_cast<std::uint8_t>(b));
    r_.pop_bytes(static_cast<std::uint32_t>(text.bytes.size()));
    r_.trie_finished();
    return text;
  }
  R& recognizer() { return r_; }

 private:
  bool forced_byte(std::uint8_t* byte) {
    if constexpr (StackForcedByte<R>) {
      return r_.forced_byte(byte);
    } else {
      if (r_.special_allowed(SpecialToken::eos)) return false;
      int found = -1;
      for (int b = 0; b < 256; b++) {
        if (!r_.byte_allowed(static_cast<std::uint8_t>(b))) continue;
        if (found >= 0) return false;
        found = b;
      }
      *byte = static_cast<std::uint8_t>(found);
      return found >= 0;
    }
  }

  R r_;
  /// Number of bytes pushed since the start: those on the stack, if it is not collapsed.
  std::uint32_t height_ = 0;
};

}  // namespace aici::detail
