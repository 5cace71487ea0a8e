#include "generation.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"

namespace script {
namespace {

bool can_take_back() { return aici::capability(aici::Capability::backtrack) != 0; }

/// Returns the number of bytes without an incomplete character at the end.
std::size_t whole_characters(std::string_view text) {
  std::size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 3 && (static_cast<unsigned char>(text[begin - 1]) & 0xC0) == 0x80) begin--;
  if (begin == 0) return text.size();
  const auto first = static_cast<unsigned char>(text[begin - 1]);
  const std::size_t wanted = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
  return text.size() - begin + 1 < wanted ? begin - 1 : text.size();
}

}  // namespace

Generation::Generation(const script_generation& wanted, Patterns& patterns, Sequence& sequence)
    : sequence_(sequence),
      max_tokens_(wanted.max_tokens),
      max_bytes_(wanted.max_bytes),
      options_(wanted.options),
      top_(options_.top_logprobs),
      logprobs_(wanted.logprobs || top_ != 0),
      include_stop_(wanted.include_stop),
      prediction_(std::move(options_.prediction)),
      may_leave_(wanted.leave && can_take_back() && aici::capability(aici::Capability::hold_end) != 0) {
  if (logprobs_ && top_ == 0) options_.top_logprobs = 1;
  for (std::size_t i = 0; i < wanted.num_stops; i++) stops_.emplace_back(wanted.stops[i].data, wanted.stops[i].size);
  if (wanted.pattern != SCRIPT_NO_PATTERN) constraint_ = &patterns.start(wanted.pattern);
  if (max_tokens_ == 0) finish(SCRIPT_FINISH_TOKENS);
  if (max_bytes_ == 0) finish(SCRIPT_FINISH_BYTES);
}

void Generation::append(std::span<const aici::TokenId> tokens, const aici::Step& step) {
  beyond_ = tokens.size();
  for (aici::TokenId token : tokens) {
    beyond_--;
    append_one(token, step);
    if (over_) return;
  }
}

void Generation::append_one(aici::TokenId token, const aici::Step& step) {
  const aici::Vocabulary& vocab = aici::vocabulary();
  if (open_ != nullptr && !vocab.is_eos(token) && !(open_[token >> 5] >> (token & 31) & 1)) return leave(token);
  if (constraint_ != nullptr) {
    constraint_->append({&token, 1});
    if (constraint_->has_captures()) aici::detail::append_token_text(token, followed_);
  }
  if (vocab.is_eos(token)) {
    if (can_take_back()) sequence_.cut_end();
    return finish(SCRIPT_FINISH_END);
  }
  prediction_.append(token);
  const bool known = logprobs_ && step.sampled();
  const float none = std::numeric_limits<float>::quiet_NaN();
  scored_.push_back({token, known ? step.logprob() : none, known ? step.allowed_mass() : none,
                     static_cast<std::uint32_t>(tops_.size()), 0});
  if (known)
    for (const aici::Top& top : step.top().first(std::min<std::size_t>(step.top().size(), top_)))
      tops_.push_back({top.token, top.logprob}), scored_.back().num_top++;
  const std::string_view bytes = vocab.is_special(token) ? std::string_view() : vocab.token(token);
  text_ += bytes;
  ends_.push_back(text_.size());
  if (const std::size_t end = find_stop(bytes.size()); end != std::string::npos) {
    cut(end);
    return finish(SCRIPT_FINISH_STOP);
  }
  if (text_.size() >= max_bytes_) {
    cut(whole_characters(std::string_view(text_).substr(0, max_bytes_)));
    return finish(SCRIPT_FINISH_BYTES);
  }
  if (constraint_ != nullptr && constraint_->ended()) return finish(SCRIPT_FINISH_COMPLETE);
  if (scored_.size() >= max_tokens_) finish(SCRIPT_FINISH_TOKENS);
}

void Generation::leave(aici::TokenId token) {
  sequence_.cut(sequence_.size() - beyond_ - 1);
  beyond_ = 0;
  const std::string_view bytes = aici::vocabulary().token(token);
  if (const std::size_t rest = aici::vocabulary().is_special(token) ? 0 : constraint_->longest_end(bytes); rest != 0) {
    text_ += bytes.substr(0, rest);
    followed_ += bytes.substr(0, rest);
    force(bytes.substr(0, rest));
  }
  finish(SCRIPT_FINISH_END);
}

void Generation::force(std::string_view text) {
  const std::vector<aici::TokenId> tokens = aici::tokenize(text);
  sequence_.force(tokens);
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (aici::TokenId token : tokens) scored_.push_back({token, none, none, 0, 0});
}

void Generation::finish(script_finish how) {
  finish_ = how;
  over_ = true;
  const bool whole = how == SCRIPT_FINISH_COMPLETE || how == SCRIPT_FINISH_END;
  if (whole && constraint_ != nullptr && constraint_->has_captures()) constraint_->write_captures(followed_);
  // removes text that the constraint forced beyond the end
  if (beyond_ != 0 && can_take_back()) sequence_.cut(sequence_.size() - beyond_);
}

std::optional<aici::MidResult> Generation::next() {
  if (over_) return std::nullopt;
  if (constraint_ == nullptr) return with_options(aici::MidResult::sample_any());
  aici::MidResult result = constraint_->next();
  if (result.is_stop()) {
    finish(SCRIPT_FINISH_COMPLETE);
    return std::nullopt;
  }
  // a grammar may have a temperature for a part of the text
  const float temperature = result.raw().temperature;
  open_ = nullptr;
  if (may_leave_ && result.raw().row_kind == AICI_ROW_BITMASK && constraint_->may_end()) {
    open_ = reinterpret_cast<const std::uint32_t*>(result.raw().row);
    result = aici::MidResult::sample_any().with_temperature(temperature);
  }
  return with_options(std::move(result));
}

aici::MidResult Generation::with_options(aici::MidResult row) {
  const auto expected = prediction_.next(options_.max_drafts + 1);
  options_.prediction.assign(expected.begin(), expected.end());
  return options_.apply(std::move(row));
}

std::size_t Generation::find_stop(std::size_t added) const {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t back = added + stop.size() - 1;
    const std::size_t at = text_.find(stop, text_.size() > back ? text_.size() - back : 0);
    if (at != std::string::npos) first = std::min(first, include_stop_ ? at + stop.size() : at);
  }
  return first;
}

void Generation::cut(std::size_t size) {
  if (size >= text_.size()) return;
  text_.resize(size);
  const auto kept = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), size) - ends_.begin());
  const std::size_t begin = kept == 0 ? 0 : ends_[kept - 1];
  const std::size_t removed = ends_.size() - kept;
  ends_.resize(kept), scored_.resize(kept);
  if (!can_take_back()) return;
  sequence_.cut(sequence_.size() - removed - beyond_);
  beyond_ = 0;
  if (begin != size) force(std::string_view(text_).substr(begin));
}

script_generated Generation::result() const {
  return {{text_.data(), text_.size()}, finish_, scored_.data(), scored_.size(), tops_.data()};
}

}  // namespace script
