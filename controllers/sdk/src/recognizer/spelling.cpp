#include "aici/detail/spelling.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"

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
