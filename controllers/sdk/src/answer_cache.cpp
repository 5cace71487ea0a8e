#include "aici/answer_cache.hpp"

#include <cstring>
#include <utility>

namespace aici {

namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);
/// Places of differences are 16-bit numbers.
constexpr std::size_t kMostPlaces = 0x10000;

/// Words in which a mask differs from another, or from nothing.
std::uint32_t differences(std::span<const std::uint32_t> mask, const std::uint32_t* base) {
  std::uint32_t count = 0;
  for (std::size_t w = 0; w < mask.size(); w++) count += mask[w] != (base != nullptr ? base[w] : 0);
  return count;
}

constexpr std::size_t packed_words(std::uint32_t differences) { return differences + (differences + 1) / 2; }

}  // namespace

const Answer* AnswerCache::find(std::uint64_t key, TokenSet& scratch) {
  for (Entry& entry : entries_) {
    if (entry.key != key) continue;
    entry.last_use = ++now_;
    if (entry.form == Form::stop) {
      found_ = {Answer::Kind::stop, {}};
    } else if (entry.form == Form::tokens) {
      found_ = {Answer::Kind::tokens, {entry.data.get(), entry.count}};
    } else if (entry.base == Base::other && entry.count == 0) {
      found_ = {Answer::Kind::mask, {wholes_[entry.other].words.get(), mask_words_}};
    } else {
      if (entry.base == Base::other)
        std::memcpy(scratch.data(), wholes_[entry.other].words.get(), mask_words_ * kWord);
      else
        entry.base == Base::text ? scratch.allow_text() : scratch.clear();
      const auto* places = reinterpret_cast<const std::uint16_t*>(entry.data.get() + entry.count);
      for (std::uint32_t i = 0; i < entry.count; i++) scratch.data()[places[i]] = entry.data[i];
      found_ = {Answer::Kind::mask, scratch.words()};
    }
    return &found_;
  }
  return nullptr;
}

AnswerCache::Entry AnswerCache::pack(std::span<const std::uint32_t> mask) {
  const std::uint32_t* const text = vocabulary().text_mask();
  const std::uint32_t* base = nullptr;
  Entry entry;
  entry.form = Form::mask;
  entry.count = differences(mask, nullptr);
  if (const std::uint32_t count = differences(mask, text); count < entry.count) {
    entry.count = count;
    entry.base = Base::text;
    base = text;
  }
  for (std::uint32_t i = 0; i < wholes_.size(); i++) {
    if (wholes_[i].users == 0) continue;
    if (const std::uint32_t count = differences(mask, wholes_[i].words.get()); count < entry.count) {
      entry.count = count;
      entry.base = Base::other;
      entry.other = i;
      base = wholes_[i].words.get();
    }
  }
  // Half the size of a mask is not worth the work of putting it together again.
  if (mask.size() > kMostPlaces || packed_words(entry.count) * 2 > mask.size()) {
    entry.count = 0;
    entry.base = Base::other;
    entry.other = add_whole(mask);
    return entry;
  }
  if (entry.count == 0) return entry;
  entry.data.reset(new std::uint32_t[packed_words(entry.count)]);
  auto* places = reinterpret_cast<std::uint16_t*>(entry.data.get() + entry.count);
  std::uint32_t at = 0;
  for (std::size_t w = 0; w < mask.size(); w++) {
    if (mask[w] == (base != nullptr ? base[w] : 0)) continue;
    places[at] = static_cast<std::uint16_t>(w);
    entry.data[at++] = mask[w];
  }
  return entry;
}

std::uint32_t AnswerCache::add_whole(std::span<const std::uint32_t> mask) {
  std::uint32_t at = 0;
  while (at < wholes_.size() && wholes_[at].users != 0) at++;
  if (at == wholes_.size()) wholes_.push_back({});
  wholes_[at].words.reset(new std::uint32_t[mask.size()]);
  std::memcpy(wholes_[at].words.get(), mask.data(), mask.size_bytes());
  bytes_ += mask.size_bytes();
  return at;
}

void AnswerCache::put(std::uint64_t key, const Answer& answer) {
  Entry entry;
  if (answer.kind == Answer::Kind::mask) {
    mask_words_ = static_cast<std::uint32_t>(answer.words.size());
    entry = pack(answer.words);
    if (entry.base == Base::other) wholes_[entry.other].users++;
  } else if (answer.kind == Answer::Kind::tokens) {
    entry.form = Form::tokens;
    entry.count = static_cast<std::uint32_t>(answer.words.size());
    entry.data.reset(new std::uint32_t[answer.words.size()]);
    std::memcpy(entry.data.get(), answer.words.data(), answer.words.size_bytes());
  }
  entry.key = key;
  entry.last_use = ++now_;
  bytes_ += bytes(entry);
  entries_.push_back(std::move(entry));
  while (bytes_ > budget_ && !entries_.empty()) drop_oldest();
}

/// What an entry takes, without the mask that it may share.
std::size_t AnswerCache::bytes(const Entry& entry) const {
  return sizeof(Entry) + (entry.form == Form::mask ? packed_words(entry.count) : entry.count) * kWord;
}

void AnswerCache::drop_oldest() {
  std::size_t oldest = 0;
  for (std::size_t i = 1; i < entries_.size(); i++)
    if (entries_[i].last_use < entries_[oldest].last_use) oldest = i;
  const Entry& entry = entries_[oldest];
  bytes_ -= bytes(entry);
  if (entry.base == Base::other && --wholes_[entry.other].users == 0) {
    wholes_[entry.other].words.reset();
    bytes_ -= mask_words_ * kWord;
  }
  if (oldest + 1 != entries_.size()) entries_[oldest] = std::move(entries_.back());
  entries_.pop_back();
}

void AnswerCache::clear() {
  entries_.clear();
  wholes_.clear();
  bytes_ = 0;
}

}  // namespace aici
