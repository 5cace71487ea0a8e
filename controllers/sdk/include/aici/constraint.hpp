// constraint.hpp - follows a recognizer along a sequence and says what may come next.
//
// For controllers that do more than one thing; if the constraint is all there is, RecognizerController
// (recognizer_controller.hpp) is the whole controller.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "aici/answer_cache.hpp"
#include "aici/bias.hpp"
#include "aici/controller.hpp"
#include "aici/forced_text.hpp"
#include "aici/functional.hpp"
#include "aici/recognizer.hpp"
#include "aici/signature.hpp"
#include "aici/spelling.hpp"

namespace aici {

namespace detail {

/// A recognizer together with where it is. Both kinds of recognizer, one interface.
template <class R>
class Cursor;

template <FunctionalRecognizer F>
class Cursor<F> {
 public:
  using State = typename F::State;
  explicit Cursor(F f) : f_(std::move(f)), state_(f_.initial()) {}

  bool append(std::string_view text) {
    for (char byte : text)
      if (State next = state_; try_append(f_, state_, static_cast<std::uint8_t>(byte), &next))
        state_ = next;
      else
        return false;
    return true;
  }
  /// True if earlier keys are void.
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
  /// Goes to where most bytes lead, if any byte is allowed.
  bool follow_most() {
    if constexpr (std::equality_comparable<State>)
      return detail::favourite(f_, state_, &state_);
    else
      return false;
  }
  void back_to_start() { state_ = f_.initial(); }
  bool special_allowed(SpecialToken which) { return f_.special_allowed(state_, which); }
  void compute_bias(TokenSet& out) { aici::compute_bias(f_, state_, out); }
  /// 0 = the state has no key.
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
    while (text.bytes.size() < ForcedText::kMost && aici::forced_byte(f_, at, &byte)) {
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
  F f_;
  State state_;
};

template <ByteStack R>
  requires(!FunctionalRecognizer<R>)
class Cursor<R> {
 public:
  explicit Cursor(R r) : r_(std::move(r)) {}

  bool append(std::string_view text) {
    for (char byte : text)
      if (!r_.try_push_byte(static_cast<std::uint8_t>(byte))) return false;
    r_.collapse();
    return true;
  }
  bool compact() { return false; }
  const char* failure() const { return nullptr; }
  bool special_allowed(SpecialToken which) { return r_.special_allowed(which); }
  void compute_bias(TokenSet& out) { aici::compute_bias(r_, out); }
  std::uint64_t key() {
    if constexpr (StackStateKey<R>)
      return r_.state_key();
    else
      return 0;
  }
  ForcedText forced_text() {
    ForcedText text;
    std::uint8_t byte = 0;
    while (text.bytes.size() < ForcedText::kMost && forced_byte(&byte)) {
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
};

/// Does the host have the model's own tokenizer?
bool tokenizer_is_exact();

/// The spelling of a recognizer's texts, if it can list them.
template <class R>
auto spelling_of(const R& recognizer) {
  if constexpr (HasTexts<R>)
    return tokenizer_is_exact() ? Spelling(recognizer.texts()) : Spelling();
  else
    return NoSpelling();
}

[[noreturn]] void fail_forbidden(TokenId token);
[[noreturn]] void fail_stuck();
/// Forced tokens as a result: one at a time if the engine takes no more.
MidResult forced(std::span<const TokenId> tokens);

}  // namespace detail

/// What a constraint may keep in memory. A page that is written to belongs to one sequence alone, so
/// this is the main part of what a sequence costs.
struct ConstraintOptions {
  std::size_t cache_bytes = 64 << 10;
  /// States that `prepare` looks at.
  unsigned prepared_states = 4;
};

/// A recognizer (functional or byte stack) that goes along with a sequence.
template <class R>
class Constraint {
 public:
  explicit Constraint(R recognizer, ConstraintOptions options = {})
      : cursor_(std::move(recognizer)),
        cache_(options.cache_bytes),
        prepared_states_(options.prepared_states),
        spelling_(detail::spelling_of(cursor_.recognizer())) {}

  /// For controllers' constructors, before anything is appended: finds the answers for the states that most
  /// texts begin with. All sequences with the same argument start from what a constructor
  /// leaves and share its memory. Fails if nothing is allowed at all.
  void prepare() {
    if (spelling_.known()) return;
    if constexpr (FunctionalRecognizer<R>) {
      for (unsigned i = 0; i < prepared_states_ && cursor_.key() != 0; i++) {
        const Answer answer = find_answer();
        if (answer.kind == Answer::Kind::stop) break;
        if (answer.kind == Answer::Kind::tokens)
          for (TokenId token : answer.words) cursor_.append(vocabulary().token(token));
        else if (!cursor_.follow_most())
          break;
      }
      cursor_.back_to_start();
    }
  }

  /// Takes note of tokens that were appended; fails the sequence if one is not allowed.
  void append(std::span<const TokenId> tokens) {
    const Vocabulary& vocab = vocabulary();
    for (TokenId token : tokens) {
      if (!forced_.empty()) {
        // What was announced and comes leaves the rest as it is.
        if (forced_.front() == token)
          forced_.erase(forced_.begin());
        else
          forced_.clear();
      }
      if (vocab.is_special(token)) {
        append_special(vocab, token);
      } else {
        if (ended_ || !cursor_.append(vocab.token(token))) detail::fail_forbidden(token);
        spelling_.append(token);
      }
    }
  }

  /// Has an end-of-sequence token come?
  bool ended() const { return ended_; }
  /// May the text end here?
  bool may_end() { return ended_ || cursor_.special_allowed(SpecialToken::eos); }

  /// What may come now: a mask, forced tokens, or Stop if nothing but the end is possible.
  MidResult next() {
    if (ended_) return MidResult::stop();
    if (forced_.empty()) {
      if (cursor_.compact()) cache_.clear();
      const Answer answer = find_answer();
      if (answer.kind == Answer::Kind::stop) return MidResult::stop();
      if (answer.kind == Answer::Kind::mask)
        return MidResult::bits(answer.words.data(), static_cast<std::uint32_t>(answer.words.size()));
      forced_.assign(answer.words.begin(), answer.words.end());
    }
    return detail::forced(forced_);
  }

  R& recognizer() { return cursor_.recognizer(); }
  std::size_t cached_bytes() const { return cache_.bytes(); }

 private:
  void append_special(const Vocabulary& vocab, TokenId token) {
    if (vocab.is_eos(token)) {
      if (!may_end()) detail::fail_forbidden(token);
      ended_ = true;
      return;
    }
    for (SpecialToken which : kSpecialTokens)
      if (vocab.special_token(which) == token && cursor_.special_allowed(which)) return;
    detail::fail_forbidden(token);
  }

  Answer find_answer() {
    if (spelling_.known()) return spelling_.next(scratch_);
    const std::uint64_t key = cursor_.key();
    if (key != 0)
      if (const Answer* known = cache_.find(key, scratch_)) return *known;
    const Answer answer = make_answer();
    if (key != 0) cache_.put(key, answer);
    return answer;
  }

  Answer make_answer() {
    if (detail::tokenizer_is_exact()) {
      const ForcedText text = cursor_.forced_text();
      if (!text.bytes.empty()) {
        settled_ = settled_tokens(text);
        if (!settled_.empty()) return {Answer::Kind::tokens, settled_};
      }
    }
    cursor_.compute_bias(scratch_);
    if (const char* failure = cursor_.failure()) fail(failure);
    if (cursor_.special_allowed(SpecialToken::eos) && !scratch_.has_text()) return {Answer::Kind::stop, {}};
    if (scratch_.empty()) detail::fail_stuck();
    return {Answer::Kind::mask, scratch_.words()};
  }

  detail::Cursor<R> cursor_;
  AnswerCache cache_;
  unsigned prepared_states_;
  [[no_unique_address]] decltype(detail::spelling_of(std::declval<const R&>())) spelling_;
  TokenSet scratch_;
  std::vector<TokenId> settled_;
  /// Tokens that are to come, one after the other or all at once.
  std::vector<TokenId> forced_;
  bool ended_ = false;
};

}  // namespace aici
