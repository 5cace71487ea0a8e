// Writes a regular expression of ECMAScript as a pattern of aici/regex.
#include <algorithm>

#include "aici/text.hpp"
#include "strings.hpp"

namespace aici::json_schema {

const std::string& any_character(bool plain) {
  static const std::string kPlain = "[\\x{0}-\\x{10ffff}]";
  static const std::string kJson =
      R"((?:[\x{20}\x{21}\x{23}-\x{5b}\x{5d}-\x{10ffff}]|\\(?:["\\bfnrt]|u00(?:0[0-7be-f]|1[0-9a-f]))))";
  return plain ? kPlain : kJson;
}

const std::string& any_text(bool plain) {
  static const std::string kPlain = any_character(true) + "*", kJson = any_character(false) + "*";
  return plain ? kPlain : kJson;
}

namespace {

using regex::CodepointSet;
using Kind = EcmaNode::Kind;

constexpr std::size_t kMaxBranches = 256;
constexpr std::size_t kMaxText = 200'000;

void append_hex(std::uint32_t number, std::string* out) {
  *out += "\\x{";
  int shift = 20;
  while (shift > 0 && number >> shift == 0) shift -= 4;
  for (; shift >= 0; shift -= 4) *out += "0123456789abcdef"[number >> shift & 15];
  *out += '}';
}

CodepointSet escaped() {
  CodepointSet set(0, 0x1F);
  set.add('"', '"');
  set.add('\\', '\\');
  return set;
}

enum class Escapes : std::uint8_t {
  kWritten,  ///< as in a JSON string
  kLeftOut,  ///< as in a JSON string, but without characters that are written as escapes
  kNone,     ///< as in a plain text
};

/// Returns a pattern for the characters of a set, as they are written in a text.
std::string spell(const CodepointSet& set, Escapes how) {
  static const CodepointSet kJsonEscaped = escaped(), kNothing;
  const CodepointSet& kEscaped = how == Escapes::kNone ? kNothing : kJsonEscaped;
  if (set == CodepointSet::all() && how != Escapes::kLeftOut) return any_character(how == Escapes::kNone);
  std::string plain, letters, low, high;
  const CodepointSet plainly = set - kEscaped, escapes_only = set & kEscaped;
  for (const regex::CodepointRange& range : plainly.ranges()) {
    append_hex(range.low, &plain);
    if (range.high > range.low) plain += '-', append_hex(range.high, &plain);
  }
  static constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  if (how == Escapes::kWritten) {
    for (const regex::CodepointRange& range : escapes_only.ranges())
      for (std::uint32_t c = range.low; c <= range.high; c++) {
        if (const std::size_t which = kShort.find(static_cast<char>(c)); which != std::string_view::npos)
          letters.append(c == '\\' ? "\\" : "").append(1, kLetters[which]);
        else
          (c < 0x10 ? low : high) += "0123456789abcdef"[c & 15];
      }
  }
  std::string numbers;
  if (!low.empty()) numbers += "0[" + low + "]";
  if (!high.empty()) numbers += (low.empty() ? "1[" : "|1[") + high + "]";
  std::string escapes = letters.empty() ? "" : "[" + letters + "]";
  if (!numbers.empty()) escapes += (letters.empty() ? "u00(?:" : "|u00(?:") + numbers + ")";
  if (plain.empty() && escapes.empty()) return "[a&&b]";
  if (escapes.empty()) return "[" + plain + "]";
  return "(?:" + (plain.empty() ? "" : "[" + plain + "]|") + "\\\\(?:" + escapes + "))";
}

struct Facts {
  std::string text;
  std::uint32_t min = 0, max = 0;
  bool start = false, end = false;
  bool inner = false;  ///< has word boundaries or look-arounds
};

std::uint32_t add(std::uint32_t a, std::uint32_t b) {
  return a == kUnlimited || b == kUnlimited || a + b < a ? kUnlimited : a + b;
}
std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  if (a == 0 || b == 0) return 0;
  return a == kUnlimited || b == kUnlimited || a > (kUnlimited - 1) / b ? kUnlimited : a * b;
}

/// One alternative of the whole expression, and whether it is anchored at the start and the end of the string.
struct Branch {
  bool start = false, end = false;
  std::vector<std::uint32_t> items;
};

class Builder {
 public:
  Builder(const EcmaTree& tree, bool plain) : tree_(tree), escapes_(plain ? Escapes::kNone : Escapes::kWritten) {}

  Pattern run() {
    for (const EcmaNode& node : tree_.nodes)
      if ((node.kind == Kind::kBoundary || node.kind == Kind::kNoBoundary) && escapes_ == Escapes::kWritten)
        escapes_ = Escapes::kLeftOut;
    for (const EcmaNode& node : tree_.nodes) {
      facts_.push_back(facts(node));
      if ((size_ += facts_.back().text.size()) > kMaxText) return refused("it is too large");
    }
    Branch whole;
    whole.items.push_back(static_cast<std::uint32_t>(tree_.nodes.size() - 1));
    std::vector<Branch> branches;
    if (!separate(whole, &branches)) return refused("it has too many alternatives");
    find_bounds(branches);
    write_text(branches);
    find_stretch(branches);
    return std::move(pattern_);
  }

 private:
  static Pattern refused(std::string_view why) {
    Pattern pattern;
    pattern.problem = "the pattern is not supported: " + std::string(why);
    return pattern;
  }
  Facts facts(const EcmaNode& node) const;
  bool separate(Branch from, std::vector<Branch>* out) const;
  void find_bounds(const std::vector<Branch>& branches);
  std::string fewest(std::uint32_t item) const;
  void write_text(const std::vector<Branch>& branches);
  std::string any() const { return spell(CodepointSet::all(), escapes_) + "*"; }
  void find_stretch(const std::vector<Branch>& branches);

  const EcmaTree& tree_;
  std::vector<Facts> facts_;
  /// With word boundaries, escapes would be taken for words, so strings with escapes do not match.
  Escapes escapes_;
  std::size_t size_ = 0;
  Pattern pattern_;
};

Facts Builder::facts(const EcmaNode& node) const {
  Facts out;
  for (const std::uint32_t child : node.children) {
    const Facts& of = facts_[child];
    out.start |= of.start, out.end |= of.end, out.inner |= of.inner;
  }
  switch (node.kind) {
    case Kind::kClass:
      out.text = spell(tree_.sets[node.set], escapes_);
      out.min = out.max = 1;
      break;
    case Kind::kConcat:
      for (const std::uint32_t child : node.children) {
        out.text += facts_[child].text;
        out.min = add(out.min, facts_[child].min), out.max = add(out.max, facts_[child].max);
      }
      break;
    case Kind::kAlternate:
      out.min = kUnlimited;
      for (const std::uint32_t child : node.children) {
        out.text += (out.text.empty() ? "(?:" : "|") + facts_[child].text;
        out.min = std::min(out.min, facts_[child].min), out.max = std::max(out.max, facts_[child].max);
      }
      out.text += ')';
      break;
    case Kind::kRepeat: {
      const Facts& of = facts_[node.children[0]];
      out.text = "(?:" + of.text + "){" + std::string(Number(node.min).text()) + ",";
      if (node.max != kUnlimited) out.text += Number(node.max).text();
      out.text += '}';
      out.min = multiply(of.min, node.min), out.max = multiply(of.max, node.max);
      break;
    }
    case Kind::kStart: out.text = "\\A", out.start = true; break;
    case Kind::kEnd: out.text = "\\z", out.end = true; break;
    case Kind::kBoundary: out.text = "(?-u:\\b)", out.inner = true; break;
    case Kind::kNoBoundary: out.text = "(?-u:\\B)", out.inner = true; break;
    case Kind::kAhead: return {.text = "(?=" + facts_[node.children[0]].text + ")", .inner = true};
    case Kind::kNotAhead: return {.text = "(?!" + facts_[node.children[0]].text + ")", .inner = true};
    // from the start of the string on, since the end of an escape is not a character
    case Kind::kBehind: return {.text = "(?<=\\A" + any() + facts_[node.children[0]].text + ")", .inner = true};
    case Kind::kNotBehind: return {.text = "(?<!\\A" + any() + facts_[node.children[0]].text + ")", .inner = true};
  }
  return out;
}

/// Removes anchors from both ends, separately for each alternative.
bool Builder::separate(Branch from, std::vector<Branch>* out) const {
  std::vector<Branch> work{std::move(from)};
  while (!work.empty()) {
    if (work.size() + out->size() > kMaxBranches) return false;
    Branch branch = std::move(work.back());
    work.pop_back();
    bool split = false;
    const auto open_up = [&](bool front) {
      const auto at = front ? branch.items.begin() : branch.items.end() - 1;
      const EcmaNode& node = tree_.nodes[*at];
      const Facts& of = facts_[*at];
      if (front ? !of.start && !(of.end && branch.items.size() == 1) : !of.end) return false;
      if (node.kind == Kind::kConcat) {
        const auto place = branch.items.erase(at);
        branch.items.insert(place, node.children.begin(), node.children.end());
        return true;
      }
      if (node.kind == Kind::kStart && front) {
        branch.start = true;
      } else if (node.kind == Kind::kEnd && !front) {
        branch.end = true;
      } else if (node.kind == Kind::kAlternate) {
        for (std::size_t i = node.children.size(); i-- > 0;) {
          Branch one = branch;
          one.items[static_cast<std::size_t>(at - branch.items.begin())] = node.children[i];
          work.push_back(std::move(one));
        }
        split = true;
        return false;
      } else {
        return false;
      }
      branch.items.erase(at);
      return true;
    };
    while (!branch.items.empty() && open_up(true)) {
    }
    while (!split && !branch.items.empty() && open_up(false)) {
    }
    if (!split) out->push_back(std::move(branch));
  }
  return true;
}

void Builder::find_bounds(const std::vector<Branch>& branches) {
  pattern_.min_length = kUnlimited, pattern_.max_length = 0;
  for (const Branch& branch : branches) {
    std::uint32_t min = 0, max = branch.start && branch.end ? 0 : kUnlimited;
    for (const std::uint32_t item : branch.items) {
      const Facts& of = facts_[item];
      min = add(min, of.min), max = add(max, of.max);
    }
    pattern_.min_length = std::min(pattern_.min_length, min), pattern_.max_length = std::max(pattern_.max_length, max);
  }
}

/// Returns the text of an item; for a repetition, with the minimum number of repetitions.
std::string Builder::fewest(std::uint32_t item) const {
  const Facts& of = facts_[item];
  const EcmaNode& node = tree_.nodes[item];
  if (node.kind != Kind::kRepeat || of.start || of.end || of.inner) return of.text;
  return "(?:" + facts_[node.children[0]].text + "){" + std::string(Number(node.min).text()) + "}";
}

void Builder::write_text(const std::vector<Branch>& branches) {
  std::string& text = pattern_.text;
  for (const Branch& branch : branches) {
    text += text.empty() ? "(?:" : "|";
    if (!branch.start) text += any();
    for (std::size_t i = 0; i < branch.items.size(); i++) {
      const Facts& of = facts_[branch.items[i]];
      pattern_.assertive = pattern_.assertive || of.start || of.end || of.inner;
      // next to any text, the minimum number of repetitions is as good as more
      const bool open = (i == 0 && !branch.start) || (i + 1 == branch.items.size() && !branch.end);
      text += open ? fewest(branch.items[i]) : of.text;
    }
    if (!branch.end) text += any();
  }
  text += ')';
}

void Builder::find_stretch(const std::vector<Branch>& branches) {
  if (branches.size() != 1 || !branches[0].start || !branches[0].end || pattern_.assertive) return;
  Pattern::Stretch stretch;
  for (const std::uint32_t item : branches[0].items) {
    const Facts& of = facts_[item];
    const EcmaNode& node = tree_.nodes[item];
    if (of.min == of.max) {
      (stretch.known ? stretch.after : stretch.before) += of.text;
      stretch.fixed = add(stretch.fixed, of.min);
    } else if (!stretch.known && node.kind == Kind::kRepeat && tree_.nodes[node.children[0]].kind == Kind::kClass) {
      stretch.known = true;
      stretch.unit = facts_[node.children[0]].text;
      stretch.least = node.min, stretch.most = node.max;
    } else {
      return;
    }
  }
  pattern_.stretch = std::move(stretch);
}

}  // namespace

Pattern read_ecma(std::string_view source, bool plain) {
  EcmaTree tree;
  Pattern pattern;
  if (!parse_ecma(source, &tree, &pattern.problem)) return pattern;
  return Builder(tree, plain).run();
}

}  // namespace aici::json_schema
