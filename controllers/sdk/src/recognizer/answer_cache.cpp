#include "aici/detail/answer_cache.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace aici {

namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);
/// Number of words of a block of a mask: its tokens differ in the lower 16 bits only.
constexpr std::size_t kBlock = 2048;
/// A mask with at least kLong differences is stored whole from its kOften-th use on, if there is room. Uses in a row count
/// as one.
constexpr std::uint32_t kOften = 2, kLong = 256;

/// Numbers of words that are compared at once, by vector instructions. Most groups of similar masks are equal.
constexpr std::size_t kGroup = 64, kPart = 8;
/// In place of a group of the empty mask.
const std::uint32_t no_tokens[kGroup] = {};

template <std::size_t size>
bool differ(const std::uint32_t* words, const std::uint32_t* others) {
  std::uint32_t any = 0;
  for (std::size_t w = 0; w < size; w++) any |= words[w] ^ others[w];
  return any != 0;
}

/// Calls `visit` with the number of each word that differs from `base` (null: the empty mask), and the differences,
/// until it returns false.
template <class Visit>
void for_each_difference(std::span<const std::uint32_t> mask, const std::uint32_t* base, Visit visit) {
  for (std::size_t from = 0; from < mask.size(); from += kGroup) {
    const std::uint32_t* const words = mask.data() + from;
    const std::uint32_t* const others = base != nullptr ? base + from : no_tokens;
    const std::size_t size = std::min(kGroup, mask.size() - from);
    if (size == kGroup && !differ<kGroup>(words, others)) continue;
    for (std::size_t part = 0; part < size; part += kPart) {
      if (part + kPart <= size && !differ<kPart>(words + part, others + part)) continue;
      for (std::size_t w = part; w < std::min(part + kPart, size); w++)
        if (const std::uint32_t bits = words[w] ^ others[w]; bits != 0 && !visit(from + w, bits)) return;
    }
  }
}

/// Number of words, about, of a sample. With kManySamples differences in them, a mask has too many to be packed.
constexpr std::size_t kSamples = 64, kManySamples = 36;

/// Counts the differences in a sample.
[[gnu::noinline]] std::uint32_t sampled_differences(std::span<const std::uint32_t> mask, const std::uint32_t* base) {
  const std::size_t step = mask.size() / kSamples + 1;
  std::uint32_t count = 0;
  for (std::size_t w = step / 2; w < mask.size(); w += step)
    count += static_cast<std::uint32_t>(__builtin_popcount(mask[w] ^ (base != nullptr ? base[w] : 0)));
  return count;
}

/// Keys are hashes or packed numbers of states.
std::uint32_t hash_of(std::uint64_t key) {
  Hasher hasher;
  hasher.add(static_cast<std::uint32_t>(key)), hasher.add(static_cast<std::uint32_t>(key >> 32));
  return hasher.bits();
}

std::size_t blocks(std::size_t mask_words) { return (mask_words + kBlock - 1) / kBlock; }

}  // namespace

const AnswerCache::Entry* AnswerCache::look_kept(std::uint64_t key) const {
  const std::uint32_t found = kept_index_.find(hash_of(key), [&](std::uint32_t i) { return kept_[i].key == key; });
  return found == HashIndex::kNone ? nullptr : &kept_[found];
}

AnswerCache::Entry* AnswerCache::look(std::uint64_t key) {
  if (const Entry* kept = look_kept(key)) return const_cast<Entry*>(kept);
  for (Entry& entry : entries_)
    if (entry.key == key) return &entry;
  return nullptr;
}

const Answer* AnswerCache::find(std::uint64_t key, TokenSet& scratch) {
  Entry* const found = look(key);
  if (found == nullptr) return nullptr;
  Entry& entry = *found;
  // Kept entries are in shared memory, so as few of their pages as possible should be written to.
  const bool kept = is_kept(entry);
  if (!kept) entry.last_use = ++now_;
  if (entry.form == Form::stop) {
    found_ = {Answer::Kind::stop, {}};
  } else if (entry.form == Form::tokens) {
    found_ = {Answer::Kind::tokens, {entry.data.get(), entry.count}};
  } else if (entry.base == Base::whole && entry.count == 0) {
    found_ = {Answer::Kind::mask, {wholes_[entry.whole].words.get(), mask_words_}};
  } else {
    unpack(entry, scratch);
    found_ = {Answer::Kind::mask, scratch.words()};
    // A kept mask that is stored whole never frees its memory again, so such masks take at most half of the budget.
    const std::size_t room = kept ? budget_ / 2 : budget_;
    if (entry.count >= kLong && ++entry.uses >= kOften && bytes_ + mask_words_ * kWord <= room) {
      if (kept) bytes_ += entry.data_words * kWord;  // kept data did not count, but make_whole subtracts it
      make_whole(entry, scratch);
    }
  }
  return &found_;
}

void AnswerCache::keep(std::size_t room, TokenSet& scratch) {
  for (Entry& entry : entries_) {
    if (entry.form == Form::mask && entry.count >= kLong && kept_bytes_ + bytes_ + mask_words_ * kWord <= room) {
      unpack(entry, scratch);
      make_whole(entry, scratch);
    }
    kept_index_.insert(hash_of(entry.key), static_cast<std::uint32_t>(kept_.size()));
    kept_.push_back(std::move(entry));
  }
  entries_.clear();
  kept_bytes_ += bytes_;
  bytes_ = 0;
}

void AnswerCache::put(std::uint64_t key, const Answer& answer) {
  Entry entry;
  if (answer.kind == Answer::Kind::mask) {
    mask_words_ = static_cast<std::uint32_t>(answer.words.size());
    entry = pack(answer.words);
  } else if (answer.kind == Answer::Kind::tokens) {
    entry.form = Form::tokens;
    entry.count = entry.data_words = static_cast<std::uint32_t>(answer.words.size());
    entry.data.reset(new std::uint32_t[answer.words.size()]);
    std::memcpy(entry.data.get(), answer.words.data(), answer.words.size_bytes());
  }
  entry.key = key;
  entry.last_use = ++now_;
  bytes_ += sizeof(Entry) + entry.data_words * kWord;
  entries_.push_back(std::move(entry));
  while (bytes_ > budget_ && !entries_.empty()) drop_oldest();
}

void AnswerCache::clear() {
  entries_.clear();
  kept_.clear();
  kept_index_.clear();
  wholes_.clear();
  bytes_ = kept_bytes_ = 0;
}

const std::uint32_t* AnswerCache::base_of(const Entry& entry) const {
  if (entry.base == Base::nothing) return nullptr;
  return entry.base == Base::text ? vocabulary().text_mask() : wholes_[entry.whole].words.get();
}

AnswerCache::Entry AnswerCache::pack(std::span<const std::uint32_t> mask) {
  Entry entry;
  entry.form = Form::mask;
  // A few words show the likest base well enough: comparing all of them would cost more than a few more differences.
  std::uint32_t fewest = sampled_differences(mask, nullptr);
  const auto compare = [&](const std::uint32_t* words, Base base, std::uint32_t whole) {
    const std::uint32_t count = fewest != 0 ? sampled_differences(mask, words) : 0;
    if (count >= fewest) return;
    fewest = count;
    entry.base = base;
    entry.whole = whole;
  };
  compare(vocabulary().text_mask(), Base::text, 0);
  for (std::uint32_t i = 0; i < wholes_.size(); i++)
    if (wholes_[i].users != 0) compare(wholes_[i].words.get(), Base::whole, i);
  const std::size_t first = blocks(mask.size()), most = mask.size() / 4;  // words
  const auto whole = [&] {  // as a base for others
    keep_whole(&entry, mask);
    return std::move(entry);
  };
  if (fewest > kManySamples) return whole();
  std::unique_ptr<std::uint32_t[]> data(new std::uint32_t[most + 16]);
  std::fill_n(data.get(), first, 0u);
  auto* const places = reinterpret_cast<std::uint16_t*>(data.get() + first);
  for_each_difference(mask, base_of(entry), [&](std::size_t word, std::uint32_t bits) {
    for (; bits != 0; bits &= bits - 1) {
      data[word / kBlock]++;
      places[entry.count++] = static_cast<std::uint16_t>(word * 32 + static_cast<std::uint32_t>(__builtin_ctz(bits)));
    }
    return first + (entry.count + 1) / 2 <= most;
  });
  const std::size_t words = first + (entry.count + 1) / 2;
  if (words > most) return whole();
  entry.data_words = static_cast<std::uint32_t>(words);
  entry.data.reset(new std::uint32_t[words]);
  std::memcpy(entry.data.get(), data.get(), words * kWord);
  if (entry.base == Base::whole) wholes_[entry.whole].users++;
  return entry;
}

void AnswerCache::unpack(const Entry& entry, TokenSet& out) const {
  const std::uint32_t* const base = base_of(entry);
  base != nullptr ? std::memcpy(out.data(), base, mask_words_ * kWord)
                  : std::memset(out.data(), 0, mask_words_ * kWord);
  const auto* place = reinterpret_cast<const std::uint16_t*>(entry.data.get() + blocks(mask_words_));
  for (std::size_t block = 0; block < blocks(mask_words_); block++) {
    std::uint32_t* const words = out.data() + block * kBlock;
    for (std::uint32_t left = entry.data[block]; left != 0; left--, place++)
      words[*place >> 5] ^= 1u << (*place & 31);
  }
}

void AnswerCache::make_whole(Entry& entry, const TokenSet& mask) {
  bytes_ -= entry.data_words * kWord;
  release_base(entry);
  keep_whole(&entry, mask.words());
}

void AnswerCache::keep_whole(Entry* entry, std::span<const std::uint32_t> mask) {
  std::uint32_t at = 0;
  while (at < wholes_.size() && wholes_[at].users != 0) at++;
  if (at == wholes_.size()) wholes_.push_back({});
  wholes_[at].users = 1;
  wholes_[at].words.reset(new std::uint32_t[mask.size()]);
  std::memcpy(wholes_[at].words.get(), mask.data(), mask.size_bytes());
  bytes_ += mask.size_bytes();
  entry->base = Base::whole;
  entry->whole = at;
  entry->count = entry->data_words = 0;
  entry->data.reset();
}

void AnswerCache::release_base(const Entry& entry) {
  if (entry.base != Base::whole || --wholes_[entry.whole].users != 0) return;
  wholes_[entry.whole].words.reset();
  bytes_ -= mask_words_ * kWord;
}

void AnswerCache::drop_oldest() {
  std::size_t oldest = 0;
  for (std::size_t i = 1; i < entries_.size(); i++)
    if (entries_[i].last_use < entries_[oldest].last_use) oldest = i;
  bytes_ -= sizeof(Entry) + entries_[oldest].data_words * kWord;
  release_base(entries_[oldest]);
  if (oldest + 1 != entries_.size()) entries_[oldest] = std::move(entries_.back());
  entries_.pop_back();
}

const InnerMasks::Known* InnerMasks::load(std::uint32_t inner, TokenSet& out) {
  for (const Known& known : known_) {
    if (known.inner != inner) continue;
    const Answer* answer = masks_.find(inner, out);
    if (answer == nullptr) return nullptr;
    if (answer->words.data() != out.data()) std::memcpy(out.data(), answer->words.data(), answer->words.size_bytes());
    return &known;
  }
  return nullptr;
}

void InnerMasks::put(std::uint32_t inner, const TokenSet& mask, std::vector<Exit> exits) {
  if (exits.size() > kMaxExits) return;
  if (known_.size() >= kMaxKnown) clear();
  std::erase_if(known_, [&](const Known& known) { return known.inner == inner; });
  known_.push_back({inner, std::move(exits)});
  masks_.put(inner, {Answer::Kind::mask, mask.words()});
}

void InnerMasks::keep() {
  masks_.keep(kKeptWhole, scratch());
  for (Known& known : known_) known.join();
}

void InnerMasks::Known::join() {
  // where more follows, as after a blank, the walk skips most of it
  constexpr std::size_t kMaxNodes = 8192;
  const TrieNode* const all = vocabulary().nodes();
  std::size_t size = 0;
  for (const Exit& exit : exits) size += all[exit.node].subtree_size();
  if (size > kMaxNodes) return;
  const auto key = [&](const Exit& exit) { return std::pair(exit.above, all[exit.node].byte()); };
  std::ranges::stable_sort(exits, {}, key);
  std::vector<std::pair<Exit, std::size_t>> begins;
  for (std::size_t first = 0, end = 0; first < exits.size(); first = end) {
    std::vector<const TrieNode*> same;
    for (; end < exits.size() && key(exits[end]) == key(exits[first]); end++) same.push_back(all + exits[end].node);
    if (begins.empty() || begins.back().first.above != exits[first].above) begins.emplace_back(exits[first], nodes.size());
    join(same, 1);
  }
  begins.emplace_back(Exit{}, nodes.size());
  nodes.push_back({static_cast<std::uint32_t>(tokens.size()), 0, 0, 0});
  for (std::size_t i = 0; i + 1 < begins.size(); i++)
    joined.push_back({begins[i].first, std::span(nodes).subspan(begins[i].second, begins[i + 1].second - begins[i].second),
                      tokens.data()});
  std::ranges::sort(exits, {}, &Exit::node);
}

/// Adds a node for these ones, which have the same byte, and nodes for those below.
void InnerMasks::Known::join(std::span<const TrieNode* const> same, unsigned depth) {
  const std::size_t at = nodes.size();
  nodes.push_back({static_cast<std::uint32_t>(tokens.size()), 0, same.front()->byte(), static_cast<std::uint8_t>(depth)});
  std::vector<const TrieNode*> below;
  for (const TrieNode* node : same) {
    if (node->token() != TrieNode::kNoToken) tokens.push_back(node->token());
    for (const TrieNode& child : Children(node)) below.push_back(&child);
  }
  std::ranges::stable_sort(below, {}, &TrieNode::byte);
  for (std::size_t first = 0, end = 0; first < below.size(); first = end) {
    while (end < below.size() && below[end]->byte() == below[first]->byte()) end++;
    join(std::span(below).subspan(first, end - first), depth + 1);
  }
  nodes[at].subtree_size = static_cast<std::uint16_t>(nodes.size() - at);
}

const TokenSet& InnerMasks::subtree(const TrieNode* node) {
  for (const auto& [known, tokens] : subtrees_)
    if (known == node) return tokens;
  if (subtrees_.size() == kMaxSubtrees) subtrees_.erase(subtrees_.begin());
  TokenSet& tokens = subtrees_.emplace_back(node, TokenSet()).second;
  const TokenId* const order = vocabulary().order();
  for (std::uint32_t i = node->first(); i < (node + node->subtree_size())->first(); i++) tokens.allow(order[i]);
  return tokens;
}

TokenSet& InnerMasks::scratch() {
  if (scratch_ == nullptr) scratch_ = std::make_unique<TokenSet>();
  return *scratch_;
}

void InnerMasks::clear() {
  masks_.clear();
  known_.clear();
}

}  // namespace aici
