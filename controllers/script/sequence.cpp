#include "sequence.hpp"

#include <algorithm>
#include <utility>

#include "aici/host.hpp"

namespace script {

void Sequence::begin(std::span<const aici::TokenId> prompt) {
  tokens_.assign(prompt.begin(), prompt.end());
  prompt_size_ = settled_ = engine_size_ = tokens_.size();
}

std::span<const aici::TokenId> Sequence::note(const aici::Step& step) {
  const std::span<const aici::TokenId> came = step.tokens();
  const bool own = std::exchange(told_, false);
  engine_size_ -= std::min<std::size_t>(step.backtrack(), engine_size_);
  if (!own && step.backtrack() != 0) cut(engine_size_);
  settled_ = std::min(settled_, engine_size_);
  engine_size_ += came.size();
  const auto rest = std::span<const aici::TokenId>(tokens_).subspan(settled_);
  // an engine cannot have an empty sequence: it then adds a first token of its own
  if (!own || came.size() > rest.size() || !std::equal(came.begin(), came.end(), rest.begin()))
    tokens_.insert(tokens_.begin() + static_cast<std::ptrdiff_t>(settled_), came.begin(), came.end());
  settled_ += came.size();
  return own ? std::span<const aici::TokenId>() : came;
}

void Sequence::force(std::span<const aici::TokenId> tokens) {
  if (held_end_ && settled_ == tokens_.size() && !tokens.empty() && tokens.front() == end_) {
    // the engine has it already
    held_end_ = false;
    tokens_.push_back(end_);
    settled_++;
    tokens = tokens.subspan(1);
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

void Sequence::cut(std::size_t size) {
  if (size >= tokens_.size()) return;
  tokens_.resize(size);
  settled_ = std::min(settled_, size);
  held_end_ = false;
  for (std::size_t& place : marks_)
    if (place > size) place = kGone;
}

bool Sequence::replace(std::size_t from, std::span<const aici::TokenId> tokens) {
  const auto old = std::span<const aici::TokenId>(tokens_).subspan(from);
  const auto same = static_cast<std::size_t>(
      std::mismatch(old.begin(), old.end(), tokens.begin(), tokens.end()).first - old.begin());
  if (same < old.size()) {
    if (from + same < settled_ && aici::capability(aici::Capability::backtrack) == 0) return false;
    cut(from + same);
  }
  force(tokens.subspan(same));
  return true;
}

void Sequence::cut_end() {
  end_ = tokens_.back();
  cut(tokens_.size() - 1);
  held_end_ = true;
}

std::uint32_t Sequence::mark() {
  marks_.push_back(tokens_.size());
  return static_cast<std::uint32_t>(marks_.size() - 1);
}

aici::MidResult Sequence::news() {
  told_ = true;
  held_end_ = false;
  const std::size_t backtrack = engine_size_ - settled_;
  const auto rest = std::span<const aici::TokenId>(tokens_).subspan(settled_);
  const bool can_force = aici::capability(aici::Capability::ff_tokens) != 0;
  if (!can_force && backtrack == 0 && !rest.empty()) return aici::MidResult::force(rest.front());
  const auto now = rest.first(can_force ? std::min(rest.size(), kMaxAtOnce) : 0);
  return aici::MidResult::splice(static_cast<std::uint32_t>(backtrack), {now.begin(), now.end()});
}

}  // namespace script
