// Texts of arguments: lines, choices, JSON, and the check of UTF-8.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aici/choices.hpp"
#include "aici/detail/containers.hpp"
#include "aici/host.hpp"
#include "aici/json.hpp"
#include "aici/quotation.hpp"
#include "aici/substring.hpp"
#include "aici/text.hpp"
#include "../regex/unicode.hpp"

namespace aici {

std::size_t utf8_length(std::string_view text) {
  for (std::size_t at = 0, start = 0; at < text.size(); start = at)
    if (regex::decode_utf8(text, &at) == regex::kInvalidUtf8) return start;
  return text.size();
}

std::vector<std::string> lines(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    found.emplace_back(line);
    text.remove_prefix(line.size() == text.size() ? line.size() : line.size() + 1);
  }
  return found;
}

Choices::Choices(std::span<const std::string> texts) : texts_(texts.begin(), texts.end()), nodes_(1) {
  for (const std::string& text : texts_) add(text);
}

void Choices::add(const std::string& text) {
  State at = 0;
  for (char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    State next = child(at, byte);
    if (next == kNone) {
      next = static_cast<State>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[at].first_child, .byte = byte});
      nodes_[at].first_child = next;
    }
    at = next;
  }
  nodes_[at].may_end = true;
}

bool Choices::forced_byte(State state, std::uint8_t* byte) const {
  const Node& node = nodes_[state];
  if (node.may_end || node.first_child == kNone || nodes_[node.first_child].sibling != kNone) return false;
  *byte = nodes_[node.first_child].byte;
  return true;
}

namespace {

void append_decimal(std::string* out, std::size_t number) {
  char digits[20];
  std::size_t first = sizeof digits;
  do digits[--first] = static_cast<char>('0' + number % 10);
  while (number /= 10);
  out->append(digits + first, sizeof digits - first);
}

}  // namespace

void JsonReader::fail(std::string_view problem) const {
  std::string message(what_);
  message.append(" is not JSON: ").append(problem).append(" at byte ");
  append_decimal(&message, at_);
  aici::fail(message);
}

int JsonReader::peek() {
  while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) at_++;
  return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1;
}

bool JsonReader::accept(char c) {
  if (peek() != c) return false;
  at_++;
  return true;
}

void JsonReader::expect(char c, std::string_view name) {
  if (!accept(c)) fail(std::string(name).append(" expected"));
}

bool JsonReader::more(char close) {
  if (accept(',')) return true;
  if (!accept(close)) fail(std::string("`,` or `").append(1, close).append("` expected"));
  return false;
}

std::uint32_t JsonReader::natural(std::uint32_t most) {
  peek();
  const std::size_t first = at_;
  std::uint32_t value = 0;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value <= most; at_++)
    value = value * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
  const bool number = at_ != first && value <= most && (at_ == first + 1 || text_[first] != '0');
  at_ = number ? at_ : first;
  if (!number) {
    std::string problem("a whole number up to ");
    append_decimal(&problem, most);
    fail(problem.append(" expected"));
  }
  return value;
}

std::string_view JsonReader::value() {
  const int begin = peek();
  const std::size_t first = at_;
  std::size_t depth = 0;
  for (int c = begin; at_ == first || depth > 0; c = peek()) {
    const bool inside = depth > 0;
    if (c == '"') {
      string();
    } else if (c == '{' || c == '[') {
      depth++, at_++;
    } else if (inside && (c == '}' || c == ']')) {
      depth--, at_++;
    } else if (inside && (c == ',' || c == ':')) {
      at_++;
    } else {
      const std::size_t end = std::min(text_.find_first_of(" \t\r\n,:]}[{\"", at_), text_.size());
      if (end == at_) fail("a value expected");
      at_ = end;
    }
  }
  return text_.substr(first, at_ - first);
}

void JsonReader::end() {
  if (peek() != -1) fail("unexpected text after the end");
}

std::string JsonReader::string() {
  expect('"', "a string");
  std::string out;
  for (;;) {
    if (at_ == text_.size()) fail("the string does not end");
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
    at_++;
    if (c == '"') return out;
    if (c == '\\')
      escape(&out);
    else
      out.push_back(c);
  }
}

void JsonReader::escape(std::string* out) {
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  if (const std::size_t which = kNames.find(c); c != '\0' && which != std::string_view::npos) {
    out->push_back(kMeanings[which]);
    at_++;
    return;
  }
  if (c != 'u') fail("an unknown escape");
  std::uint32_t code = four_digits();
  if (code >= 0xDC00 && code < 0xE000) fail("a lone surrogate");
  if (code >= 0xD800 && code < 0xDC00) {
    if (!text_.substr(at_).starts_with("\\u")) fail("a lone surrogate");
    at_++;
    const std::uint32_t low = four_digits();
    if (low < 0xDC00 || low >= 0xE000) fail("a lone surrogate");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  regex::encode_utf8(code, out);
}

/// Reads the number after `\u`; the `u` is the next byte.
std::uint32_t JsonReader::four_digits() {
  std::uint32_t number = 0;
  at_++;
  for (int i = 0; i < 4; i++, at_++) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    const char small = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9')
      number = number * 16 + static_cast<std::uint32_t>(c - '0');
    else if (small >= 'a' && small <= 'f')
      number = number * 16 + static_cast<std::uint32_t>(small - 'a' + 10);
    else
      fail("four hexadecimal digits expected");
  }
  return number;
}

std::optional<std::string> tool_arguments(std::string_view answer, std::string_view name) {
  JsonReader json(answer, "the list of calls");
  json.expect('{', "an object");
  if (json.string() != "value") return std::nullopt;  // an error
  json.expect(':', "`:`");
  json.expect('[', "a list");
  if (json.accept(']')) return std::nullopt;
  do {
    json.expect('{', "a call");
    std::string found;
    std::string_view schema = "null";
    do {
      const std::string key = json.string();
      json.expect(':', "`:`");
      if (key == "name")
        found = json.string();
      else if (const std::string_view text = json.value(); key == "schema")
        schema = text;
    } while (json.more('}'));
    if (found == name) return schema == "null" ? std::nullopt : std::optional<std::string>(schema);
  } while (json.more(']'));
  return std::nullopt;
}

namespace {

/// Builds the suffix automaton of a text, byte by byte.
///
/// The algorithm of Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985). A node stands
/// for the strings that end at the same positions of the text. Node 0 is the root. A single edge is stored in its
/// node; several edges are stored in a block whose size is the next power of two.
class SuffixAutomaton {
 public:
  explicit SuffixAutomaton(std::string_view text);

  struct Node {
    std::uint32_t length;     ///< of the node's longest string
    std::uint32_t link = 0;   ///< the node of its longest suffix that ends at more positions
    std::uint32_t edges = 0;  ///< the target of the only edge, or the block
    std::uint16_t count = 0;  ///< number of edges
    std::uint8_t label = 0;   ///< label of the only edge
    std::uint8_t order = 0;   ///< order of the block
  };

  Node& node(std::uint32_t number) { return nodes_[number >> kChunkBits][number & kInChunk]; }
  /// An upper bound for the numbers of nodes. Not every number below it is in use.
  std::uint32_t most_nodes() const { return next_; }
  /// Calls visit(number, node) for each node, the root first.
  template <class Visit>
  void each_node(Visit visit) {
    for (std::uint32_t i = 0; i < next_; i++)
      if ((i & kInChunk) < kNodesInChunk) visit(i, node(i));
  }
  /// Calls visit(label, target) for each edge.
  template <class Visit>
  void each_edge(const Node& node, Visit visit) const {
    if (node.count == 1) visit(node.label, node.edges);
    if (node.count < 2) return;
    const std::uint32_t* targets = block(node);
    const std::uint8_t* labels = labels_of(targets, node.order);
    for (std::uint32_t i = 0; i < node.count; i++) visit(labels[i], targets[i]);
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  /// Memory is allocated in chunks of 64 KiB, minus the allocator's overhead, which would double the size. Nothing is
  /// ever moved, and little is unused. A number consists of the number of a chunk and the index of a node, or of a
  /// word, in it.
  static constexpr std::uint32_t kChunkBits = 12, kInChunk = (1 << kChunkBits) - 1, kNodesInChunk = kInChunk - 3;
  static constexpr std::uint32_t kWordBits = 14, kInWords = (1 << kWordBits) - 1, kWordsInChunk = kInWords - 15;
  /// Number of words after the last block, which are only read.
  static constexpr std::uint32_t kPadding = 2;

  /// Returns the number of words of a block of 2^order edges: the targets, then the labels, four per word.
  static constexpr std::uint32_t block_words(std::uint8_t order) {
    return (1u << order) + ((1u << order) + 3) / 4;
  }
  static std::uint8_t* labels_of(std::uint32_t* targets, std::uint8_t order) {
    return reinterpret_cast<std::uint8_t*>(targets + (1u << order));
  }
  static const std::uint8_t* labels_of(const std::uint32_t* targets, std::uint8_t order) {
    return labels_of(const_cast<std::uint32_t*>(targets), order);
  }
  std::uint32_t* words(std::uint32_t at) { return chunks_[at >> kWordBits].get() + (at & kInWords); }
  std::uint32_t* block(const Node& node) { return words(node.edges); }
  const std::uint32_t* block(const Node& node) const {
    return const_cast<SuffixAutomaton*>(this)->block(node);
  }

  std::uint32_t add_node(const Node& node);
  void append(std::uint8_t byte);
  std::uint32_t split(std::uint32_t parent, std::uint8_t byte, std::uint32_t whole);
  /// Returns the target of an edge, or null.
  std::uint32_t* edge(Node& node, std::uint8_t byte);
  void add_edge(Node& node, std::uint8_t byte, std::uint32_t target);
  std::uint32_t take_block(std::uint8_t order);

  std::vector<std::unique_ptr<Node[]>> nodes_;
  std::uint32_t next_ = 0;
  std::vector<std::unique_ptr<std::uint32_t[]>> chunks_;
  std::uint32_t used_ = kWordsInChunk;  ///< words used in the last chunk
  std::uint32_t free_[9] = {kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone};  ///< free blocks by order
  std::uint32_t last_ = 0;
};

SuffixAutomaton::SuffixAutomaton(std::string_view text) {
  add_node({.length = 0, .link = kNone});
  for (const char c : text) append(static_cast<std::uint8_t>(c));
}

std::uint32_t SuffixAutomaton::add_node(const Node& added) {
  if ((next_ & kInChunk) == kNodesInChunk) next_ = (next_ | kInChunk) + 1;
  if (next_ >> kChunkBits == nodes_.size())
    nodes_.push_back(std::make_unique_for_overwrite<Node[]>(kNodesInChunk));
  node(next_) = added;
  return next_++;
}

/// Extends the text by one byte.
void SuffixAutomaton::append(std::uint8_t byte) {
  const std::uint32_t added = add_node({.length = node(last_).length + 1});
  std::uint32_t at = last_, *known = nullptr;
  last_ = added;
  for (; at != kNone; at = node(at).link) {
    known = edge(node(at), byte);
    if (known != nullptr) break;
    add_edge(node(at), byte, added);
  }
  if (known != nullptr)
    node(added).link = node(*known).length == node(at).length + 1 ? *known : split(at, byte, *known);
}

/// Moves strings of the node `whole` to a new node: those that now end at one more position. Edges from `parent` and
/// its suffixes lead to them.
std::uint32_t SuffixAutomaton::split(std::uint32_t parent, std::uint8_t byte, std::uint32_t whole) {
  const std::uint32_t part = add_node(node(whole));
  Node& copy = node(part);
  copy.length = node(parent).length + 1;
  if (copy.count > 1) {
    copy.edges = take_block(copy.order);
    std::memcpy(block(copy), block(node(whole)), 4 * block_words(copy.order));
  }
  node(whole).link = part;
  for (; parent != kNone; parent = node(parent).link) {
    std::uint32_t* target = edge(node(parent), byte);
    if (*target != whole) break;
    *target = part;
  }
  return part;
}

std::uint32_t* SuffixAutomaton::edge(Node& node, std::uint8_t byte) {
  if (node.count < 2) return node.count == 1 && node.label == byte ? &node.edges : nullptr;
  std::uint32_t* targets = block(node);
  const std::uint32_t at = detail::find_byte(labels_of(targets, node.order), node.count, byte);
  return at != node.count ? targets + at : nullptr;
}

void SuffixAutomaton::add_edge(Node& node, std::uint8_t byte, std::uint32_t target) {
  const std::uint32_t count = node.count++;
  if (count == 0) {
    node.label = byte;
    node.edges = target;
    return;
  }
  if (count == 1 || count == 1u << node.order) {
    const Node old = node;
    node.order = count == 1 ? 1 : static_cast<std::uint8_t>(old.order + 1);
    node.edges = take_block(node.order);
    std::uint32_t* targets = block(node);
    std::uint8_t* labels = labels_of(targets, node.order);
    if (count == 1) {
      targets[0] = old.edges;
      labels[0] = old.label;
    } else {
      std::uint32_t* before = block(old);
      std::memcpy(targets, before, 4 * count);
      std::memcpy(labels, labels_of(before, old.order), count);
      *before = free_[old.order];
      free_[old.order] = old.edges;
    }
  }
  std::uint32_t* targets = block(node);
  targets[count] = target;
  labels_of(targets, node.order)[count] = byte;
}

std::uint32_t SuffixAutomaton::take_block(std::uint8_t order) {
  if (free_[order] != kNone) {
    const std::uint32_t at = free_[order];
    free_[order] = *words(at);
    return at;
  }
  if (used_ + block_words(order) > kWordsInChunk - kPadding) {
    chunks_.push_back(std::make_unique_for_overwrite<std::uint32_t[]>(kWordsInChunk));
    used_ = 0;
  }
  const auto at = static_cast<std::uint32_t>((chunks_.size() - 1) << kWordBits) + used_;
  used_ += block_words(order);
  return at;
}

using Node = SuffixAutomaton::Node;

/// Sets `link` to a number for each node whose strings end at several positions, and to 0 for others. Returns the
/// number of such nodes.
Substrings::State number_branches(SuffixAutomaton& automaton) {
  // A string that ends at only one position is no suffix of another node's strings, so no node links to it.
  std::vector<bool> branches(automaton.most_nodes());
  branches[0] = true;
  automaton.each_node([&](std::uint32_t number, Node& node) {
    if (number != 0) branches[node.link] = true;
  });
  Substrings::State count = 0;
  automaton.each_node([&](std::uint32_t number, Node& node) { node.link = branches[number] ? ++count : 0; });
  return count;
}

}  // namespace

Substrings::Substrings(std::string_view text, Unit unit) : unit_(unit), text_(text) {
  if (text.size() > kMaxBytes)
    fail(std::string("the text for substrings has ")
             .append(Number(static_cast<std::uint32_t>(text.size())).text())
             .append(" bytes; at most 1000000 are possible"));
  static_assert(kMaxBytes == 1'000'000);
  SuffixAutomaton automaton(text);
  branches_ = number_branches(automaton);

  num_edges_ = 0;
  automaton.each_node([&](std::uint32_t, const Node& node) { num_edges_ += node.link != 0 ? node.count : 0; });
  data_.resize(branches_ + 2 + num_edges_ + (num_edges_ + kReadBehind + 3) / 4);
  std::uint32_t edge = 0;
  automaton.each_node([&](std::uint32_t number, const Node& node) {
    if (node.link == 0) return;
    data_[node.link] = edge;
    automaton.each_edge(node, [&](std::uint8_t label, std::uint32_t target) {
      if (number == 0 && unit == Unit::characters && (label & 0xC0) == 0x80) return;
      const Node& next = automaton.node(target);
      // The longest string that ends only there is the whole text up to that position.
      targets()[edge] = next.link != 0 ? next.link : branches_ + next.length;
      labels()[edge++] = label;
    });
  });
  data_[branches_ + 1] = edge;
}

bool Substrings::forced_byte(State state, std::uint8_t* byte) const {
  if (state == kDead || accepting(state)) return false;
  if (state <= branches_ && data_[state + 1] - data_[state] != 1) return false;
  *byte = static_cast<std::uint8_t>(any_next(state));
  return true;
}

std::size_t Substrings::bytes() const { return text_.size() + data_.size() * sizeof data_[0]; }

Quotation::Quotation(std::string_view text, std::string_view end) : substrings_(text), pairs_(1) {
  if (end.empty()) return;
  for (std::size_t i = 0; i < end.size(); i++)
    places_[static_cast<std::uint8_t>(end[i])] |= std::uint64_t{1} << i;
  last_ = std::uint64_t{1} << (end.size() - 1);
}

Quotation::State Quotation::append(State state, std::uint8_t byte) {
  const Pair now = state & kPair ? pairs_[state & ~kPair] : Pair{state, 0};
  const bool may_start = now.text != initial() && substrings_.accepting(now.text);
  const std::uint64_t marks = (now.marks << 1 | (may_start ? 1 : 0)) & places_[byte];
  if (marks & last_) return kEnded;
  const Substrings::State text = substrings_.append(now.text, byte);
  return marks == 0 ? text : intern({text, marks});
}

Quotation::State Quotation::intern(Pair pair) {
  Hasher hasher;
  hasher.add(pair.text);
  hasher.add(static_cast<std::uint32_t>(pair.marks));
  hasher.add(static_cast<std::uint32_t>(pair.marks >> 32));
  std::uint32_t number = numbers_.find(hasher.bits(), [&](std::uint32_t other) {
    return pairs_[other].text == pair.text && pairs_[other].marks == pair.marks;
  });
  if (number == HashIndex::kNone) {
    number = static_cast<std::uint32_t>(pairs_.size());
    pairs_.push_back(pair);
    numbers_.insert(hasher.bits(), number);
  }
  return kPair | number;
}

}  // namespace aici
