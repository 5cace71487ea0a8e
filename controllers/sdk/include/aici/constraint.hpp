// constraint.hpp - follows a recognizer along a sequence and computes the allowed tokens.
//
//   Constraint<Regex> number(regex::compile_or_fail("[0-9]+"));    // in the constructor
//   number.append(step().tokens());                                // in mid_process
//   return number.next();
//
// For controllers that do more than constrain the output. If the constraint is all that a controller does, use
// RecognizerController (recognizer_controller.hpp).
//
// Rules for a controller that also splices, backtracks or forces tokens by itself:
//
// - Pass every token of the constraint's text to `append`, in order: sampled tokens, tokens that the constraint forced,
//   and those of the controller's own splices. Do not pass other tokens, such as a label before the text.
// - Forced tokens arrive like the controller's own splices: `step().sampled()` is false for both. So a controller that
//   splices other text must remember that it did.
// - The constraint checks all tokens: the sequence fails if it does not allow one. The controller's own tokens may
//   differ from those that `next` announced; the next answer follows the tokens that were appended.
// - `next` does not change the state. The controller may discard its answer; a second call returns the same answer.
//   So a controller may put a label between two forced pieces, and tokens that the engine cut off from a splice are
//   announced again.
// - A constraint can only go back to the empty text. To backtrack over appended tokens, call `restart` and append the
//   rest of the text. Tokens that were not appended can be removed freely. (RecognizerController fails if tokens are
//   removed.)
// - A constraint may serve several texts, each after a `restart`; its cache stays. It may be created and destroyed at
//   any time, not only in the controller's constructor.
// - Masks of a constraint that is created in the controller's constructor are computed ahead for later sequences with
//   the same argument (warmable.hpp).
// - A mask that `next` returns belongs to the constraint. Do not call `next` or `append` or destroy the constraint
//   before `mid_process` has returned and the host has read the mask (controller.hpp, MidResult).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/controller.hpp"
#include "aici/detail/answer_cache.hpp"
#include "aici/detail/cursor.hpp"
#include "aici/functional.hpp"
#include "aici/warmable.hpp"

namespace aici {

namespace detail {

/// Returns whether the host has the model's own tokenizer.
bool tokenizer_is_exact();

/// Returns the spelling of a recognizer's texts, if it can list them.
template <class R>
auto spelling_of(const R& recognizer) {
  if constexpr (HasTexts<R>)
    return tokenizer_is_exact() ? Spelling(recognizer.texts()) : Spelling();
  else
    return NoSpelling();
}

/// Returns a pointer for the explorer of a recognizer's states, if they can be explored.
template <class R>
auto explorer_of() {
  if constexpr (Explorable<R>)
    return std::unique_ptr<Explorer<R>>();
  else
    return nullptr;
}

/// Ends the warming when it would cost more than it saves.
class Warmth {
 public:
  explicit Warmth(std::size_t bytes) : bytes_(bytes) {}
  /// `states`: bytes of the recognizer's states.
  bool has_room(const AnswerCache& cache, std::size_t states) { return !over_ && has_room(cache, states, 1); }
  /// Returns whether there is room for answers that earlier sequences have computed, which get three times as much.
  bool has_room_for_found(const AnswerCache& cache, std::size_t states) { return has_room(cache, states, 4); }
  void end() { over_ = true; }
  std::size_t bytes() const { return bytes_; }

 private:
  bool has_room(const AnswerCache& cache, std::size_t states, unsigned times) const;

  std::size_t bytes_;
  bool over_ = false;
};

[[noreturn]] void fail_forbidden(TokenId token);
[[noreturn]] void fail_stuck();
/// Returns forced tokens as a result: one at a time if the engine does not support splices.
MidResult forced(std::span<const TokenId> tokens);

/// Writes the text of each capture to the variable of its name. Of several captures with one name, the last one is
/// there, and all of them, in order, in name[0], name[1] and so on. Writes a limited number of variables; beyond it, a
/// warning to the log.
void write_captures(std::span<const Capture> captures);

/// Appends the bytes of a token to a text as a recognizer reads it.
void append_token_text(TokenId token, std::string& text);

}  // namespace detail

/// Limits on a constraint's memory. A sequence owns each page that it writes to, so this is most of a sequence's cost.
struct ConstraintOptions {
  std::size_t cache_bytes = 64 << 10;
  /// Memory for answers that are computed ahead, which sequences share: for those near the start of the text, and
  /// three times as much for those that earlier sequences have computed.
  std::size_t warm_bytes = 256 << 10;
  /// Records the sequence's tokens for `found`.
  bool records = false;
  /// Ends the text with the first token after which it is complete. The text has at least one token, and
  /// end-of-sequence tokens are never allowed.
  bool stop_when_complete = false;
};

/// A recognizer (functional or byte stack) that follows a sequence.
template <class R>
class Constraint : private Warmable {
 public:
  explicit Constraint(R recognizer, ConstraintOptions options = {})
      : cursor_(std::move(recognizer)),
        cache_(options.cache_bytes),
        stop_when_complete_(options.stop_when_complete),
        warmth_(options.warm_bytes),
        records_(options.records),
        spelling_(detail::spelling_of(cursor_.recognizer())) {}

  /// Computes the answers for the states in which most texts begin. Call it in a controller's constructor, before
  /// `append`: all sequences with the same argument share this memory. Fails if the constraint allows no token.
  void prepare() {
    if (spelling_.known()) return;
    if constexpr (FunctionalRecognizer<R>) {
      for (unsigned i = 0; i < kPreparedStates && cursor_.key() != 0; i++) {
        if (i > 0 && is_complete()) break;
        const std::optional<Answer> answer = find_answer(cursor_.key());
        if (!answer && i == 0) detail::fail_stuck();
        // without an answer the state is one in the middle of tokens
        if (!answer || answer->kind == Answer::Kind::stop) break;
        if (answer->kind == Answer::Kind::tokens)
          for (TokenId token : answer->words) cursor_.append(vocabulary().token(token));
        else if (!cursor_.follow_most())
          break;
      }
      cursor_.back_to_start();
    }
  }

  /// Follows appended tokens; fails the sequence if one is not allowed.
  void append(std::span<const TokenId> tokens) {
    const Vocabulary& vocab = vocabulary();
    for (TokenId token : tokens) {
      if (!forced_.empty()) {
        // an announced token leaves the other announced tokens valid
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
        if constexpr (detail::Reports<R>)
          if (records_) record_.append(token);
        ended_ = is_complete();
      }
    }
  }

  /// Returns whether the text has ended, by an end-of-sequence token or by ConstraintOptions::stop_when_complete.
  bool ended() const { return ended_; }
  /// Returns whether the text may end here.
  bool may_end() { return ended_ || eos_allowed(); }

  /// Returns to the empty text. The caches stay, and the answers are those of a new constraint. It may also be called
  /// after `append` or `next` has failed, if a handler has caught the failure (host.hpp).
  void restart() {
    cursor_.back_to_start();
    spelling_.restart();
    if constexpr (detail::Reports<R>) record_.clear();
    forced_.clear();
    ended_ = false;
    shown_key_ = 0;
    compact();  // now: after a failure the recognizer may be wrong about states until then
  }

  /// Returns the length of the longest prefix of `text` that the constraint allows and after which its own text may
  /// end; 0 if there is none. Use it for tokens that begin with the end of the text and continue with something else.
  std::size_t longest_end(std::string_view text) { return ended_ ? 0 : cursor_.longest_end(text); }

  /// Returns the allowed tokens as a mask, the forced tokens, or Stop if only the end is possible.
  MidResult next() {
    if (ended_) return MidResult::stop();
    if (forced_.empty()) {
      compact();
      const Answer& answer = show_answer();
      if (answer.kind == Answer::Kind::stop) return MidResult::stop();
      if (answer.kind == Answer::Kind::mask)
        return MidResult::bits(answer.words.data(), static_cast<std::uint32_t>(answer.words.size()), shown_number_)
            .with_temperature(cursor_.temperature());
      forced_.assign(answer.words.begin(), answer.words.end());
    }
    return detail::forced(forced_);
  }

  /// Lists the states whose answers this sequence has computed, if these are worth a new snapshot; later sequences
  /// start with their answers. Requires ConstraintOptions::records. The constraint must not be used any more.
  detail::FoundTexts found() {
    if constexpr (detail::Reports<R>) {
      const auto is_new = [&](typename R::State state) {
        cursor_.go_to(state);
        return !cache_.keeps(cursor_.key());
      };
      detail::FoundTexts texts = record_.texts(recognizer(), is_new);
      if (texts.count() * kWorthwhile > num_learned_) return texts;
    }
    return {};
  }

  bool has_captures() {
    if constexpr (HasCaptures<R>)
      return recognizer().has_captures();
    else
      return false;
  }
  /// Writes a variable for each capture of a complete text that the constraint has allowed.
  void write_captures(std::string_view text) {
    if constexpr (HasCaptures<R>) detail::write_captures(recognizer().captures(text));
  }

  R& recognizer() { return cursor_.recognizer(); }
  /// Of ConstraintOptions::cache_bytes.
  std::size_t cached_bytes() const { return cache_.bytes(); }

 private:
  /// Number of states for which `prepare` computes answers. Most masks of a recognizer with inner states
  /// (detail/answer_cache.hpp) are computed quickly.
  static constexpr unsigned kPreparedStates = HasInner<R> ? 1 : 4;
  /// States to look at in one call of `warm`, if none of them needs an answer.
  static constexpr unsigned kStepsAtOnce = 64;
  /// What a sequence has found is worth a new snapshot if it is more than this part of what earlier ones have found.
  static constexpr std::size_t kWorthwhile = 32;

  void append_special(const Vocabulary& vocab, TokenId token) {
    if (vocab.is_eos(token)) {
      if (!may_end()) detail::fail_forbidden(token);
      ended_ = true;
      return;
    }
    if (cursor_.append_token(token)) {
      // the record lists texts only
      if constexpr (detail::Reports<R>) records_ = false, record_.clear();
      return;
    }
    for (SpecialToken which : kSpecialTokens)
      if (vocab.special_token(which) == token && cursor_.special_allowed(which)) return;
    detail::fail_forbidden(token);
  }

  void compact() {
    if (cursor_.compact()) cache_.clear(), shown_key_ = 0;
  }
  bool is_complete() { return stop_when_complete_ && cursor_.special_allowed(SpecialToken::eos); }
  bool eos_allowed() { return !stop_when_complete_ && cursor_.special_allowed(SpecialToken::eos); }

  /// Finds the answer of another state, and keeps it.
  bool warm() override {
    if constexpr (detail::Explorable<R>) {
      if (spelling_.known()) return false;
      if constexpr (detail::Reports<R>)
        if (detail::FoundTexts found = detail::FoundTexts::of_host(); !found.bytes().empty()) return learn(found);
      if (!has_room()) return false;
      if (explorer_ == nullptr) explorer_ = std::make_unique<detail::Explorer<R>>(cursor_.state());
      if (const auto* state = explorer_->next(recognizer(), kStepsAtOnce)) {
        const auto here = cursor_.state();
        cursor_.go_to(*state);
        keep_answer();
        cursor_.go_to(here);
      }
      if (!explorer_->over() && has_room()) return true;
      explorer_.reset();
      warmth_.end();
    }
    return false;
  }

  bool has_room() { return warmth_.has_room(cache_, state_bytes()); }
  /// Zero for a recognizer that does not build its states lazily.
  std::size_t state_bytes() {
    if constexpr (HasCompact<R>)
      return recognizer().bytes();
    else
      return 0;
  }

  /// Finds the answer of the next state that an earlier sequence has found. Returns false after the last one.
  bool learn(detail::FoundTexts& found) {
    if (const std::uint64_t hash = found.hash(); hash != learning_) learning_ = hash, learned_ = 0;
    for (std::size_t i = 0; i <= learned_; i++)
      if (!found.next()) return false;
    if (!warmth_.has_room_for_found(cache_, state_bytes())) return false;
    learned_++;
    const auto here = cursor_.state();
    const std::size_t before = cache_.num_kept();
    const bool allowed = cursor_.append(found.text());
    if (allowed) keep_answer();
    cursor_.go_to(here);
    num_learned_ += cache_.num_kept() - before;
    return allowed;
  }

  /// Computes the answer of the present state, unless it is known, and pins it.
  void keep_answer() {
    if (const std::uint64_t key = cursor_.key(); !cache_.has(key))
      if (const std::optional<Answer> answer = make_answer()) cache_.put(key, *answer);
    cache_.keep(warmth_.bytes() / 2, scratch_);
    shown_key_ = 0;
  }

  /// Finds the answer of the present state, unless it is that of the last call. In strings most answers are.
  const Answer& show_answer() {
    const std::uint64_t key = spelling_.known() ? 0 : cursor_.key();
    if (key == 0 || key != shown_key_) {
      const std::optional<Answer> answer = find_answer(key);
      if (!answer) detail::fail_stuck();
      shown_ = *answer;
      shown_key_ = key;
      shown_number_ = MidResult::new_number();
    }
    return shown_;
  }

  /// Finds the answer of the present state, which has this key. It is valid until the next call. Nothing if no token
  /// may come, and the text may not end.
  std::optional<Answer> find_answer(std::uint64_t key) {
    shown_key_ = 0;
    if (spelling_.known()) return spelling_.next(scratch_);
    if (key != 0)
      if (const Answer* known = cache_.find(key, scratch_)) return *known;
    const std::optional<Answer> answer = make_answer();
    if (answer && key != 0) cache_.put(key, *answer);
    if constexpr (detail::Reports<R>)
      if (answer && records_) record_.computed();
    return answer;
  }

  /// Computes an answer as `find_answer` returns it. (The walk is half of a small controller: once is enough.)
  [[gnu::noinline]] std::optional<Answer> make_answer() {
    if (detail::tokenizer_is_exact()) {
      const ForcedText text = cursor_.forced_text();
      if (!text.bytes.empty()) {
        settled_ = settled_tokens(text);
        if (!settled_.empty()) return Answer{Answer::Kind::tokens, settled_};
      }
    }
    const bool any_special = cursor_.compute_bias(scratch_);
    if (const char* failure = cursor_.failure()) fail(failure);
    if (eos_allowed() && !scratch_.has_text() && !any_special) return Answer{Answer::Kind::stop, {}};
    if (stop_when_complete_)
      for (TokenId token : vocabulary().eos()) scratch_.forbid(token);
    if (scratch_.empty()) return std::nullopt;
    return Answer{Answer::Kind::mask, scratch_.words()};
  }

  detail::Cursor<R> cursor_;
  AnswerCache cache_;
  bool stop_when_complete_;
  detail::Warmth warmth_;
  bool records_;
  detail::Record record_;
  /// The list of AICI_FOUND that `learn` reads, and the number of its texts that are done.
  std::uint64_t learning_ = 0;
  std::size_t learned_ = 0;
  /// Number of pinned answers of such lists.
  std::size_t num_learned_ = 0;
  /// While there is something to warm.
  decltype(detail::explorer_of<R>()) explorer_;
  [[no_unique_address]] decltype(detail::spelling_of(std::declval<const R&>())) spelling_;
  TokenSet scratch_;
  std::vector<TokenId> settled_;
  /// The last answer of `show_answer`, the state's key (0 if it is not valid any more), and the number of its row.
  Answer shown_;
  std::uint64_t shown_key_ = 0;
  std::uint32_t shown_number_ = 0;
  /// Tokens that are to come, one after the other or all at once.
  std::vector<TokenId> forced_;
  bool ended_ = false;
};

}  // namespace aici
