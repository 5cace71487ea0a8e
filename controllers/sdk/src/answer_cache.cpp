#include "aici/answer_cache.hpp"

#include <cstring>
#include <utility>

namespace aici {

namespace {

/// Words in which a mask differs from another, or from nothing.
std::uint32_t differences(std::span<const std::uint32_t> mask, const std::uint32_t* base) {
  std::uint32_t count = 0;
  for (std::size_t w = 0; w < mask.size(); w++) count += mask[w] != (base != nullptr ? base[w] : 0);
  return count;
}

constexpr std::size_t packed_words(std::uint32_t differences) { return differences + (differences + 1) / 2; }

}  // namespace

std::size_t AnswerCache::Entry::bytes() const {
  const bool packed = form == Form::over_nothing || form == Form::over_text;
  return sizeof(Entry) + (packed ? packed_words(count) : count) * sizeof(std::uint32_t);
}

const Answer* AnswerCache::find(std::uint64_t key, TokenSet& scratch) {
  for (Entry& entry : entries_) {
    if (entry.key != key) continue;
    entry.last_use = ++now_;
    switch (entry.form) {
      case Form::stop:
        found_ = {Answer::Kind::stop, {}};
        break;
      case Form::tokens:
        found_ = {Answer::Kind::tokens, {entry.data.get(), entry.count}};
        break;
      case Form::whole:
        found_ = {Answer::Kind::mask, {entry.data.get(), entry.count}};
        break;
      case Form::over_nothing:
      case Form::over_text: {
        entry.form == Form::over_text ? scratch.allow_text() : scratch.clear();
        const auto* places = reinterpret_cast<const std::uint16_t*>(entry.data.get() + entry.count);
        for (std::uint32_t i = 0; i < entry.count; i++) scratch.data()[places[i]] = entry.data[i];
        found_ = {Answer::Kind::mask, scratch.words()};
        break;
      }
    }
    return &found_;
  }
  return nullptr;
}

AnswerCache::Entry AnswerCache::pack_mask(std::span<const std::uint32_t> mask) const {
  const std::uint32_t* text = vocabulary().text_mask();
  const std::uint32_t over_nothing = differences(mask, nullptr), over_text = differences(mask, text);
  const std::uint32_t* base = over_nothing <= over_text ? nullptr : text;
  const std::uint32_t count = base == nullptr ? over_nothing : over_text;
  Entry entry = {};
  if (mask.size() > 0x10000 || packed_words(count) * 2 > mask.size()) {  // not worth the work of unpacking
    entry.form = Form::whole;
    entry.count = static_cast<std::uint32_t>(mask.size());
    entry.data.reset(new std::uint32_t[mask.size()]);
    std::memcpy(entry.data.get(), mask.data(), mask.size_bytes());
    return entry;
  }
  entry.form = base == nullptr ? Form::over_nothing : Form::over_text;
  entry.count = count;
  entry.data.reset(new std::uint32_t[packed_words(count)]);
  auto* places = reinterpret_cast<std::uint16_t*>(entry.data.get() + count);
  std::uint32_t at = 0;
  for (std::size_t w = 0; w < mask.size(); w++) {
    if (mask[w] == (base != nullptr ? base[w] : 0)) continue;
    places[at] = static_cast<std::uint16_t>(w);
    entry.data[at++] = mask[w];
  }
  return entry;
}

void AnswerCache::put(std::uint64_t key, const Answer& answer) {
  Entry entry = {};
  switch (answer.kind) {
    case Answer::Kind::stop:
      entry.form = Form::stop;
      break;
    case Answer::Kind::mask:
      entry = pack_mask(answer.words);
      break;
    case Answer::Kind::tokens:
      entry.form = Form::tokens;
      entry.count = static_cast<std::uint32_t>(answer.words.size());
      entry.data.reset(new std::uint32_t[answer.words.size()]);
      std::memcpy(entry.data.get(), answer.words.data(), answer.words.size_bytes());
      break;
  }
  if (entry.bytes() > budget_) return;
  make_room(entry.bytes());
  entry.key = key;
  entry.last_use = ++now_;
  bytes_ += entry.bytes();
  entries_.push_back(std::move(entry));
}

void AnswerCache::make_room(std::size_t bytes) {
  while (bytes_ + bytes > budget_) {
    std::size_t oldest = 0;
    for (std::size_t i = 1; i < entries_.size(); i++)
      if (entries_[i].last_use < entries_[oldest].last_use) oldest = i;
    bytes_ -= entries_[oldest].bytes();
    entries_[oldest] = std::move(entries_.back());
    entries_.pop_back();
  }
}

}  // namespace aici
