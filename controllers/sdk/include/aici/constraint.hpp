// constraint.hpp - follows a recognizer along a sequence and says what may come next.
//
//   Constraint<Regex> number(regex::compile_or_fail("[0-9]+"));    // in the constructor
//   number.append(step().tokens());                                // in mid_process
//   return number.next();
//
// For controllers that do more than one thing; if the constraint is all there is, RecognizerController
// (recognizer_controller.hpp) is the whole controller.
//
// What a controller must know that also splices, takes back or forces tokens of its own:
//
// - A constraint knows what it is told. Every token that belongs to its text goes to `append`, in order: those
//   that were sampled, those that it has forced itself, and those of the controller's own splices. Tokens that are
//   not of its text, such as a label before it, do not.
// - What it forces comes as the controller's own splices do: `step().sampled()` is false for both. So a controller
//   that splices text which is not the constraint's has to remember that it did.
// - Own tokens are checked like any others: the sequence fails if the constraint does not allow them. They need
//   not be those that it has announced, or would have chosen: what it then says fits what came.
// - `next` changes nothing. Its answer may be thrown away for another; asked again, it answers the same. So a
//   label may be put between two forced pieces, and what the engine cut off from a splice is announced again.
// - There is no way back but to the empty text. A controller may take back tokens that it has not appended; for others
//   it calls `restart`, and appends what is left of the text. (RecognizerController fails when tokens are taken back.)
// - A constraint may serve one text after the other, each from `restart` on: what it has learned stays. It may be made
//   and destroyed at any time, not only in the controller's constructor.
// - Masks of its states are found ahead by themselves, for later sequences with the same argument (warmable.hpp), if
//   it is made in the controller's constructor.
// - A mask that `next` returns lies in the constraint: it must not be asked again, appended to or destroyed before
//   `mid_process` has returned and the host has read the mask (controller.hpp, MidResult).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "aici/answer_cache.hpp"
#include "aici/controller.hpp"
#include "aici/cursor.hpp"
#include "aici/explorer.hpp"
#include "aici/forced_text.hpp"
#include "aici/functional.hpp"
#include "aici/spelling.hpp"
#include "aici/warmable.hpp"

namespace aici {

namespace detail {

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

/// What goes through the states of a recognizer, where that is possible.
template <class R>
auto explorer_of() {
  if constexpr (Explorable<R>)
    return std::unique_ptr<Explorer<R>>();
  else
    return nullptr;
}

/// Ends what is done ahead where it would cost more than it gives.
class Warmth {
 public:
  explicit Warmth(std::size_t bytes) : bytes_(bytes) {}
  bool has_room(const AnswerCache& cache);
  void end() { bytes_ = 0; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::size_t first_pages_ = 0;
};

[[noreturn]] void fail_forbidden(TokenId token);
[[noreturn]] void fail_stuck();
/// Forced tokens as a result: one at a time if the engine takes no more.
MidResult forced(std::span<const TokenId> tokens);

}  // namespace detail

/// What a constraint may keep in memory. A page that is written to belongs to one sequence alone, so
/// this is the main part of what a sequence costs.
struct ConstraintOptions {
  std::size_t cache_bytes = 64 << 10;
  /// States that `prepare` looks at; of a recognizer that has inner states (inner.hpp) only the first, since most masks
  /// are found quickly there.
  unsigned prepared_states = 4;
  /// For answers that are found ahead, which sequences share.
  std::size_t warm_bytes = 256 << 10;
  /// The text ends with the first token after which it is whole, and has one token at least. End-of-sequence tokens are
  /// never allowed.
  bool stop_when_complete = false;
};

/// A recognizer (functional or byte stack) that goes along with a sequence.
template <class R>
class Constraint : private Warmable {
 public:
  explicit Constraint(R recognizer, ConstraintOptions options = {})
      : cursor_(std::move(recognizer)),
        cache_(options.cache_bytes),
        prepared_states_(HasInner<R> ? std::min(1u, options.prepared_states) : options.prepared_states),
        stop_when_complete_(options.stop_when_complete),
        warmth_(options.warm_bytes),
        spelling_(detail::spelling_of(cursor_.recognizer())) {}

  /// For controllers' constructors, before anything is appended: finds the answers for the states that most
  /// texts begin with. All sequences with the same argument start from what a constructor
  /// leaves and share its memory. Fails if nothing is allowed at all.
  void prepare() {
    if (spelling_.known()) return;
    if constexpr (FunctionalRecognizer<R>) {
      for (unsigned i = 0; i < prepared_states_ && cursor_.key() != 0; i++) {
        if (i > 0 && is_complete()) break;
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
        ended_ = is_complete();
      }
    }
  }

  /// Has the text ended: has an end-of-sequence token come, or is it whole (ConstraintOptions::stop_when_complete)?
  bool ended() const { return ended_; }
  /// May the text end here?
  bool may_end() { return ended_ || eos_allowed(); }

  /// Back to the empty text. Known states and masks stay known; it answers what a new constraint would. It may be
  /// called after `append` or `next` has failed, too, if a handler has caught that (host.hpp).
  void restart() {
    cursor_.back_to_start();
    spelling_.restart();
    forced_.clear();
    ended_ = false;
    compact();  // now: after a failure the recognizer may be wrong about states until then
  }

  /// How many bytes of `text` the constraint can take, at most, so that its own text may end behind them; 0 if none.
  /// For tokens that begin with the end of a text and go on with something else.
  std::size_t longest_end(std::string_view text) { return ended_ ? 0 : cursor_.longest_end(text); }

  /// What may come now: a mask, forced tokens, or Stop if nothing but the end is possible.
  MidResult next() {
    if (ended_) return MidResult::stop();
    if (forced_.empty()) {
      compact();
      const Answer answer = find_answer();
      if (answer.kind == Answer::Kind::stop) return MidResult::stop();
      if (answer.kind == Answer::Kind::mask)
        return MidResult::bits(answer.words.data(), static_cast<std::uint32_t>(answer.words.size()));
      forced_.assign(answer.words.begin(), answer.words.end());
    }
    return detail::forced(forced_);
  }

  R& recognizer() { return cursor_.recognizer(); }
  /// Of ConstraintOptions::cache_bytes.
  std::size_t cached_bytes() const { return cache_.bytes(); }

 private:
  /// States to look at in one call of `warm`, if none of them needs an answer.
  static constexpr unsigned kStepsAtOnce = 64;

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

  void compact() {
    if (cursor_.compact()) cache_.clear();
  }
  bool is_complete() { return stop_when_complete_ && cursor_.special_allowed(SpecialToken::eos); }
  bool eos_allowed() { return !stop_when_complete_ && cursor_.special_allowed(SpecialToken::eos); }

  /// Finds the answer of another state, and keeps it.
  bool warm() override {
    if constexpr (detail::Explorable<R>) {
      if (spelling_.known() || !warmth_.has_room(cache_)) return false;
      if (explorer_ == nullptr) explorer_ = std::make_unique<detail::Explorer<R>>(cursor_.state());
      if (const auto* state = explorer_->next(recognizer(), kStepsAtOnce)) {
        const auto here = cursor_.state();
        cursor_.go_to(*state);
        if (const std::uint64_t key = cursor_.key(); !cache_.has(key))
          if (const std::optional<Answer> answer = make_answer()) cache_.put(key, *answer);
        cursor_.go_to(here);
        cache_.keep(warmth_.bytes() / 2, scratch_);
      }
      if (!explorer_->over() && warmth_.has_room(cache_)) return true;
      explorer_.reset();
      warmth_.end();
    }
    return false;
  }

  Answer find_answer() {
    if (spelling_.known()) return spelling_.next(scratch_);
    const std::uint64_t key = cursor_.key();
    if (key != 0)
      if (const Answer* known = cache_.find(key, scratch_)) return *known;
    const std::optional<Answer> answer = make_answer();
    if (!answer) detail::fail_stuck();
    if (key != 0) cache_.put(key, *answer);
    return *answer;
  }

  /// Nothing if no token may come, and the text may not end. (The walk is half of a small controller: once is enough.)
  [[gnu::noinline]] std::optional<Answer> make_answer() {
    if (detail::tokenizer_is_exact()) {
      const ForcedText text = cursor_.forced_text();
      if (!text.bytes.empty()) {
        settled_ = settled_tokens(text);
        if (!settled_.empty()) return Answer{Answer::Kind::tokens, settled_};
      }
    }
    cursor_.compute_bias(scratch_);
    if (const char* failure = cursor_.failure()) fail(failure);
    if (eos_allowed() && !scratch_.has_text()) return Answer{Answer::Kind::stop, {}};
    if (stop_when_complete_)
      for (TokenId token : vocabulary().eos()) scratch_.forbid(token);
    if (scratch_.empty()) return std::nullopt;
    return Answer{Answer::Kind::mask, scratch_.words()};
  }

  detail::Cursor<R> cursor_;
  AnswerCache cache_;
  unsigned prepared_states_;
  bool stop_when_complete_;
  detail::Warmth warmth_;
  /// While there is something to warm.
  decltype(detail::explorer_of<R>()) explorer_;
  [[no_unique_address]] decltype(detail::spelling_of(std::declval<const R&>())) spelling_;
  TokenSet scratch_;
  std::vector<TokenId> settled_;
  /// Tokens that are to come, one after the other or all at once.
  std::vector<TokenId> forced_;
  bool ended_ = false;
};

}  // namespace aici
