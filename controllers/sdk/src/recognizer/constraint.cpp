#include "aici/constraint.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "aici/bias.hpp"
#include "aici/detail/cursor.hpp"
#include "aici/host.hpp"
#include "aici/vocabulary.hpp"

namespace aici::detail {

void fail_forbidden(TokenId token) {
  std::string message = "the token \"";
  message.append(vocabulary().token(token));
  fail(message + "\" was appended, but the constraint does not allow it here");
}

void fail_stuck() {
  fail("the constraint allows no token here: it cannot end, and no token of the vocabulary continues it");
}

namespace {

/// Limits of the kept answers, and of the bytes of the recognizer's states.
constexpr std::size_t kMaxKept = 4096, kMaxStates = 1 << 20;

}  // namespace

bool Warmth::has_room(const AnswerCache& cache, std::size_t states, unsigned times) const {
  return cache.kept_bytes() < times * bytes_ && cache.num_kept() < times * kMaxKept && states < times * kMaxStates;
}

bool tokenizer_is_exact() { return capability(Capability::tokenizer) != 0; }

MidResult forced(std::span<const TokenId> tokens) {
  if (tokens.size() == 1 || capability(Capability::ff_tokens) == 0) return MidResult::force(tokens[0]);
  return MidResult::splice(0, {tokens.begin(), tokens.end()});
}

namespace {

/// Maximum number of captures, since a request has a limited number of variables.
constexpr std::size_t kMaxCaptures = 256;

}  // namespace

void write_captures(std::span<const Capture> captures) {
  if (captures.size() > kMaxCaptures) {
    log("warning: only the first " + std::to_string(kMaxCaptures) + " captures of " + std::to_string(captures.size()) +
        " are written to variables\n");
    captures = captures.first(kMaxCaptures);
  }
  std::map<std::string_view, std::size_t> counts, done;
  for (const Capture& capture : captures) counts[capture.name]++;
  for (const Capture& capture : captures) {
    set_variable(capture.name, capture.text);
    if (counts[capture.name] > 1)
      set_variable(capture.name + "[" + std::to_string(done[capture.name]++) + "]", capture.text);
  }
}

void append_token_text(TokenId token, std::string& text) {
  const Vocabulary& vocab = vocabulary();
  if (!vocab.is_special(token))
    text += vocab.token(token);
  else if (!vocab.is_eos(token))
    text += token_bytes(token);
}

// For the walk over the trie (bias.hpp).

namespace {

/// Each excluded kind costs one pass over a mask. With more excluded kinds than this, a slice and the walk are faster.
constexpr int kMaxExcluded = 12;
/// Number of words processed at a time; they fit into the first-level cache.
constexpr std::uint32_t kBlock = 256;

/// Sets `out` to the largest slice within these kinds, or to nothing if there is none. Returns the kinds of the slice.
Signature start_with_slice(const Vocabulary& vocab, Signature kinds, std::uint32_t* out) {
  const auto slices = vocab.slices();
  std::size_t best = slices.size();
  for (std::size_t i = 0; i < slices.size(); i++)
    if ((slices[i] & ~kinds) == 0 &&
        (best == slices.size() || __builtin_popcount(slices[i]) > __builtin_popcount(slices[best])))
      best = i;
  const std::size_t bytes = vocab.mask_words() * sizeof(std::uint32_t);
  if (best == slices.size()) return std::memset(out, 0, bytes), 0;
  return std::memcpy(out, vocab.slice_mask(best), bytes), slices[best];
}

}  // namespace

Signature start_with(const Vocabulary& vocab, Signature kinds, std::uint32_t* out) {
  const Signature all = ((1u << vocab.classes().count) - 1) | kWellFormedUtf8 | kOtherBytes;
  const Signature excluded = all & ~kinds;
  if (__builtin_popcount(excluded) > kMaxExcluded) return start_with_slice(vocab, kinds, out);
  const std::uint32_t words = vocab.mask_words();
  const std::uint32_t* text = vocab.text_mask();
  for (std::uint32_t from = 0; from < words; from += kBlock) {
    const std::uint32_t to = from + kBlock < words ? from + kBlock : words;
    std::memcpy(out + from, text + from, (to - from) * sizeof(std::uint32_t));
    for (Signature left = excluded; left != 0; left &= left - 1) {
      const std::uint32_t* mask = vocab.class_mask(static_cast<unsigned>(__builtin_ctz(left)));
      for (std::uint32_t w = from; w < to; w++) out[w] &= ~mask[w];
    }
  }
  return kinds;
}

Signature guess_kinds(Signature free, const Signature (&after)[sizeof kSamples],
                      const Signature (&after_blank)[sizeof kSamples], Signature blank) {
  // Where words may begin, numbers may begin too and lead elsewhere, so agreement of both letters is enough.
  const Signature guess = after[0] == after[1] ? after[0] : after[2];
  std::size_t votes = 0;
  for (Signature kinds : after) votes += kinds == guess;
  if (votes + 1 < sizeof kSamples && (after[1] != guess || after[2] != guess)) return free;
  // Many tokens are a space and a word; few continue after that.
  return free | guess | (after_blank[1] == guess && after_blank[2] == guess ? blank : 0);
}

void copy_duplicates(const Vocabulary& vocab, std::uint32_t* out) {
  const auto pairs = vocab.duplicates();
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    const TokenId token = pairs[i], holder = pairs[i + 1];
    const std::uint32_t bit = 1u << (token & 31);
    out[holder >> 5] >> (holder & 31) & 1 ? out[token >> 5] |= bit : out[token >> 5] &= ~bit;
  }
}

void allow_special(const Vocabulary& vocab, SpecialToken which, std::uint32_t* out) {
  if (which == SpecialToken::eos) {
    for (TokenId token : vocab.eos()) out[token >> 5] |= 1u << (token & 31);
  } else if (const auto token = vocab.special_token(which)) {
    out[*token >> 5] |= 1u << (*token & 31);
  }
}

// For the explorer of states (answer_cache.hpp).

namespace {

constexpr ByteRange kFirst[] = {{0, 0x7F, 0}, {0xC2, 0xDF, 1}, {0xE0, 0xEF, 2}, {0xF0, 0xF4, 3}};
constexpr ByteRange kLater[] = {{0x80, 0xBF, 0}, {0x80, 0xBF, 1}, {0x80, 0xBF, 2}};

}  // namespace

std::span<const ByteRange> Frontier::bytes(std::uint8_t missing) {
  if (missing == 0) return kFirst;
  return {&kLater[missing - 1], 1};
}

bool Frontier::add(std::uint32_t number, std::uint8_t missing, unsigned cost) {
  if (seen_.size() == kMax) return false;
  Hasher hash;
  hash.add(number);
  const auto same = [&](std::uint32_t place) { return seen_[place].number == number; };
  if (index_.find(hash.bits(), same) != HashIndex::kNone) return false;
  const auto place = static_cast<std::uint32_t>(seen_.size());
  index_.insert(hash.bits(), place);
  std::uint32_t& first = first_[std::min(cost, kMaxCost)];
  seen_.push_back({number, first, missing});
  first = place + 1;
  return true;
}

std::uint32_t Frontier::next() {
  for (cost_ = 0; cost_ < kMaxCost && first_[cost_] == 0; cost_++) {
  }
  const std::uint32_t place = first_[cost_] - 1;
  if (place != kNone) first_[cost_] = seen_[place].after;
  return place;
}

}  // namespace aici::detail

namespace aici {

namespace {

/// Kinds of text that the patterns of tokenizers distinguish: one of the first bytes, then the rest.
struct KindOfText {
  std::string_view first, rest;
};
constexpr KindOfText kKinds[] = {
    {"etaoinsrhldcumfpgwybvkxjqz", ""},
    {"ETAOINSRHLDCUMFPGWYBVKXJQZ", ""},
    {"0123456789", ""},
    {" ", ""},
    {" ", "a"},
    {" ", " a"},
    {"\n", ""},
    {"\n", "\na"},
    {"\t", "a"},
    {"\r", "\n"},
    {"'", "s"},
    {"'\"`", ""},
    {".,:;!?", ""},
    {"()[]{}<>", ""},
    {"-_/\\|@#$%^&*+=~", ""},
};

/// The same beyond ASCII: upper-case, lower-case and caseless letters, marks, digits, punctuation, spaces, symbols.
constexpr std::string_view kCharacters[] = {
    "é", "É",      "\u00a0", "\u0301", "а",  "ب",  "٣",      "ब",
    "—", "\u2028", "あ",     "\u3000", "中", "한", "\uff21", "😀",
};

/// Returns samples of the texts that may follow.
std::vector<std::string> samples(const ByteSet& next) {
  std::vector<std::string> found;
  for (const KindOfText& kind : kKinds)
    for (char first : kind.first)
      if (next.has(static_cast<std::uint8_t>(first))) {
        found.push_back(first + std::string(kind.rest));
        break;
      }
  bool any = false;
  for (std::string_view character : kCharacters)
    if (next.has(static_cast<std::uint8_t>(character[0]))) {
      found.emplace_back(character);
      any = true;
    }
  // If only other first bytes are allowed, use some character with one of them.
  for (unsigned lead = 0xC2; lead < 0xF5 && !any; lead++)
    if (next.has(static_cast<std::uint8_t>(lead))) {
      std::string character(1, static_cast<char>(lead));
      character.append(lead >= 0xF0 ? "\x90\x80\x80" : lead >= 0xE0 ? "\xa0\x80" : "\x80");
      if (lead == 0xED || lead == 0xF4) character[1] = '\x80';
      found.push_back(std::move(character));
      any = true;
    }
  return found;
}

bool inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<std::uint8_t>(text[at]) & 0xC0) == 0x80;
}

/// Returns where an incomplete character at the end of the text begins; the text's size if there is none.
std::size_t whole_characters(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); back++) {
    const auto byte = static_cast<std::uint8_t>(text[text.size() - back]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

/// Returns the child of `node` by `byte`, or null.
const TrieNode* child(const TrieNode* node, std::uint8_t byte) {
  for (const TrieNode& c : Children(node))
    if (c.byte() >= byte) return c.byte() == byte ? &c : nullptr;
  return nullptr;
}

/// Returns the node that `text` leads to, or null.
const TrieNode* find_node(std::string_view text) {
  const TrieNode* node = vocabulary().nodes();
  for (std::size_t i = 0; i < text.size() && node != nullptr; i++)
    node = child(node, static_cast<std::uint8_t>(text[i]));
  return node;
}

bool is_token(std::string_view text) {
  const TrieNode* node = find_node(text);
  return node != nullptr && node->token() != TrieNode::kNoToken;
}

/// Returns whether a token begins with `text` and continues with a byte of `next`.
bool goes_on(std::string_view text, const ByteSet& next) {
  if (const TrieNode* node = find_node(text)) {
    for (const TrieNode& c : Children(node))
      if (next.has(c.byte())) return true;
  }
  const Vocabulary& vocab = vocabulary();
  for (TokenId token : vocab.long_tokens()) {
    const std::string_view bytes = vocab.token(token);
    if (bytes.size() > text.size() && bytes.starts_with(text) &&
        next.has(static_cast<std::uint8_t>(bytes[text.size()])))
      return true;
  }
  return false;
}

/// Returns whether a token that begins at an offset may extend beyond the text. Then only the tokens of the text before
/// that offset may remain.
std::vector<bool> possible_ends(std::string_view text, const ByteSet& next) {
  std::vector<bool> ends(text.size(), false);
  const std::size_t longest = vocabulary().max_token_len();
  const std::size_t first = text.size() > longest ? text.size() - longest : 0;
  for (std::size_t j = first; j < text.size(); j++) ends[j] = goes_on(text.substr(j), next);
  for (std::size_t j = text.size(); j-- > 0;) {
    if (!ends[j] || !inside_character(text, j)) continue;
    ends[j] = false;
    for (std::size_t i = j > longest ? j - longest : 0; i < j; i++)
      if (is_token(text.substr(i, j - i))) ends[i] = true;
  }
  return ends;
}

void keep_common(std::vector<TokenId>* settled, const std::vector<TokenId>& other) {
  const auto [end, _] = std::mismatch(settled->begin(), settled->end(), other.begin(), other.end());
  settled->erase(end, settled->end());
}

}  // namespace

std::vector<TokenId> settled_tokens(ForcedText text) {
  const std::size_t whole = whole_characters(text.bytes);
  if (whole < text.bytes.size()) {
    text.next = {};
    text.next.add(static_cast<std::uint8_t>(text.bytes[whole]));
    text.bytes.resize(whole);
  }
  const bool last = text.next.empty();
  std::vector<bool> ends;
  if (!last) {
    ends = possible_ends(text.bytes, text.next);
    if (text.bytes.empty() || ends[0]) return {};  // one token may cover the whole text
  }
  std::vector<TokenId> settled = tokenize(text.bytes);
  if (last) return settled;
  for (std::size_t j = 1; j < ends.size() && !settled.empty(); j++)
    if (ends[j]) keep_common(&settled, tokenize(std::string_view(text.bytes).substr(0, j)));
  for (const std::string& sample : samples(text.next)) {
    if (settled.empty()) break;
    keep_common(&settled, tokenize(text.bytes + sample));
  }
  return settled;
}

Spelling::Spelling(std::span<const std::string> texts) {
  const auto too_long = [](const std::string& text) { return text.size() > kMax; };
  if (std::any_of(texts.begin(), texts.end(), too_long)) return;
  for (const std::string& text : texts) {
    const std::vector<TokenId> tokens = tokenize(text);
    if (tokens.empty() && !text.empty()) fail("the vocabulary has no tokens that spell \"" + text + "\"");
    const auto begin = static_cast<std::uint32_t>(tokens_.size());
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    texts_.push_back({begin, static_cast<std::uint32_t>(tokens_.size())});
  }
  restart();
}

void Spelling::restart() {
  num_left_ = texts_.size();
  length_ = 0;
}

void Spelling::append(TokenId token) {
  for (std::size_t i = 0; i < num_left_;)
    if (rest(i).empty() || rest(i).front() != token)
      std::swap(texts_[i], texts_[--num_left_]);
    else
      i++;
  length_++;
}

Answer Spelling::next(TokenSet& scratch) const {
  const std::span<const TokenId> first = rest(0);
  auto common_end = first.end();
  bool may_end = false, may_go_on = false;
  for (std::size_t i = 0; i < num_left_; i++) {
    const std::span<const TokenId> other = rest(i);
    common_end = std::mismatch(first.begin(), common_end, other.begin(), other.end()).first;
    (other.empty() ? may_end : may_go_on) = true;
  }
  if (common_end != first.begin()) return {Answer::Kind::tokens, {first.begin(), common_end}};
  if (!may_go_on) return {Answer::Kind::stop, {}};
  scratch.clear();
  for (std::size_t i = 0; i < num_left_; i++)
    if (!rest(i).empty()) scratch.allow(rest(i).front());
  if (may_end) scratch.allow(vocabulary().eos());
  return {Answer::Kind::mask, scratch.words()};
}

}  // namespace aici
