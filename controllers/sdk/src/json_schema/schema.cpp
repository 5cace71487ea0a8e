#include "aici/json_schema/schema.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "aici/bias.hpp"
#include "aici/cfg/grammar.hpp"
#include "aici/host.hpp"
#include "aici/json_schema/document.hpp"
#include "aici/json_schema/make.hpp"
#include "../regex/unicode.hpp"
#include "emitter.hpp"

namespace aici::json_schema {

bool is_keyword(std::string_view name) {
  // those that are not in Expander's list
  static constexpr std::string_view kOthers[] = {
      "contentSchema", "default",     "definitions", "deprecated", "description",      "else",
      "examples",      "id",          "maxContains", "minContains", "readOnly",        "then",
      "title",         "unevaluatedItems", "unevaluatedProperties", "writeOnly",
  };
  return name.starts_with('$') || Expander::asserts(name) ||
         std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
}

cfg::Expr add_schema(cfg::Grammar& grammar, std::string_view schema, const Options& options,
                     std::vector<Problem>* problems) {
  Document document;
  std::string error;
  if (!document.parse(schema, options.limits, &error)) {
    problems->push_back({"", "", "the schema is not JSON: " + error, Problem::Severity::kFatal});
    return grammar.never();
  }
  return add_schema(grammar, document, options, problems);
}

cfg::Expr add_schema(cfg::Grammar& grammar, const Document& document, const Options& options,
                     std::vector<Problem>* problems) {
  const Schemas schemas(document);
  Strings strings(options.plain, options.refuse_unknown_formats);
  Problems found(document);
  Expander expander(schemas, strings, found, options.limits);
  Emitter emitter(grammar, schemas, expander, strings, found, options);
  const cfg::Expr all = emitter.run();
  // a constraint that cannot be enforced may be the reason why nothing is left
  if (!found.fatal() && (options.warn || !found.any())) {
    if (all == grammar.never())
      found.wrong(emitter.cause(), "no value meets this schema");
    else if (!grammar.productive()[all])
      found.wrong(emitter.cause(), "no value meets this schema: it would have to be infinite");
  }
  const bool refused = found.fatal() || (found.any() && !options.warn);
  for (Problem& problem : found.take()) problems->push_back(std::move(problem));
  return refused ? grammar.never() : all;
}

std::optional<Whitespace> whitespace_named(std::string_view name) {
  if (name == "flexible") return Whitespace::kFlexible;
  if (name == "compact") return Whitespace::kCompact;
  if (name == "spaced") return Whitespace::kSpaced;
  return std::nullopt;
}

namespace {

/// The terminals that `prepare` has kept.
std::optional<cfg::Grammar>& prepared() {
  [[clang::no_destroy]] static std::optional<cfg::Grammar> grammar;
  return grammar;
}

}  // namespace

void prepare(std::string_view schema, std::string_view text) {
  std::vector<Problem> problems;
  make_or_fail(R"({"pattern": "."})", {}, &problems);  // finds the nodes of rare characters
  Strings::keep_compiled(true);
  cfg::Parser parser = make_or_fail(schema, {}, &problems);
  Strings::keep_compiled(false);
  TokenSet mask;
  cfg::Parser::State state = parser.initial();
  for (const char c : text) {
    compute_bias(parser, state, mask);
    state = parser.append(state, static_cast<std::uint8_t>(c));
  }
  parser.inner_masks().keep();
  prepared() = std::move(parser).terminals();
}

cfg::Parser make_or_fail(std::string_view schema, const Options& options, std::vector<Problem>* not_enforced) {
  Document document;
  std::string error;
  if (!document.parse(schema, options.limits, &error)) fail("the schema is not JSON: " + error);
  return make_or_fail(document, options, not_enforced);
}

cfg::Parser make_or_fail(const Document& schema, const Options& options, std::vector<Problem>* not_enforced) {
  cfg::Grammar grammar = std::exchange(prepared(), std::nullopt).value_or(cfg::Grammar());
  std::vector<Problem> problems;
  const cfg::Expr all = add_schema(grammar, schema, options, &problems);
  if (all == grammar.never()) {
    std::string message = "the schema is refused";
    for (const Problem& problem : problems)
      if (problem.severity == Problem::Severity::kFatal || (!options.warn && problem.severity != Problem::Severity::kRemark))
        message += "\n" + problem.text();
    fail(message);
  }
  for (Problem& problem : problems) not_enforced->push_back(std::move(problem));
  const cfg::Rule start = grammar.declare("the document");
  grammar.define(start, all);
  return cfg::make_or_fail(std::move(grammar), start);
}

namespace {

std::uint32_t hash_member(Value parent, std::string_view name) {
  Hasher hash;
  hash.add(parent);
  for (const char c : name) hash.add(static_cast<unsigned char>(c));
  return hash.bits();
}

bool is_digit(int c) { return c >= '0' && c <= '9'; }

}  // namespace

/// Parses without recursion; open arrays and objects are on its own stack.
class DocumentParser {
 public:
  using Kind = Document::Kind;

  DocumentParser(std::string_view text, const Limits& limits, Document* out)
      : text_(text), limits_(limits), out_(*out) {}

  bool run() {
    if (text_.size() > limits_.text_bytes)
      return fail("the text is too long: " + std::to_string(text_.size()) + " bytes, of at most " +
                  std::to_string(limits_.text_bytes));
    if (!value({}, 0)) return false;
    while (!open_.empty())
      if (!step()) return false;
    if (peek() >= 0) return fail("unexpected text after the end");
    return true;
  }
  std::string error() const {
    std::size_t line = 1, column = 1;
    for (const char c : text_.substr(0, at_))
      if (c == '\n')
        line++, column = 1;
      else if ((c & 0xC0) != 0x80)
        column++;
    return "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + message_;
  }

 private:
  struct Open {
    Value value;
    std::size_t first;  ///< number of its first child in found_
  };

  bool fail(std::string message) {
    message_ = std::move(message);
    return false;
  }
  int peek() {
    const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
    while (at_ < text_.size() && blank(text_[at_])) at_++;
    return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1;
  }
  bool accept(char c) {
    if (peek() != c) return false;
    at_++;
    return true;
  }
  bool step();
  bool value(std::string_view name, std::uint32_t name_at);
  bool number(Document::Node* node);
  bool string(std::uint32_t* begin, std::uint32_t* size);
  bool escape();
  bool four_digits(std::uint32_t* number);
  void close();

  std::string_view text_;
  const Limits& limits_;
  Document& out_;
  std::size_t at_ = 0;
  std::string message_;
  std::vector<Open> open_;
  std::vector<Value> found_;
};

/// Reads the next member of the innermost open value, or its end.
bool DocumentParser::step() {
  const Value inside = open_.back().value;
  const bool object = out_.nodes_[inside].kind == Kind::kObject, first = found_.size() == open_.back().first;
  const char end = object ? '}' : ']';
  if (accept(end)) return close(), true;
  if (!first) {
    if (!accept(',')) return fail(std::string("`,` or `") + end + "` is expected");
    if (peek() == end) return fail("a value is missing after this comma");
  }
  if (!object) return value({}, 0);
  if (peek() != '"') return fail("the name of a member is expected, in double quotes");
  const std::size_t at = at_;
  std::uint32_t name = 0, size = 0;
  if (!string(&name, &size)) return false;
  const std::string_view text = out_.slice(name, size);
  if (out_.find(inside, text) != kNone) {
    at_ = at;
    return fail("this object has the name \"" + std::string(text) + "\" twice");
  }
  if (!accept(':')) return fail("`:` is expected after the name of a member");
  out_.nodes_.push_back({.kind = Kind::kString, .parent = inside, .begin = name, .count = size});
  return value(out_.slice(name, size), name);
}

void DocumentParser::close() {
  Document::Node& node = out_.nodes_[open_.back().value];
  node.begin = static_cast<std::uint32_t>(out_.children_.size());
  node.count = static_cast<std::uint32_t>(found_.size() - open_.back().first);
  for (std::size_t i = open_.back().first; i < found_.size(); i++) out_.children_.push_back(found_[i]);
  node.to = static_cast<std::uint32_t>(at_);
  found_.resize(open_.back().first);
  open_.pop_back();
}

bool DocumentParser::value(std::string_view name, std::uint32_t name_at) {
  const Value id = static_cast<Value>(out_.nodes_.size());
  Document::Node node{.kind = Kind::kNull, .parent = open_.empty() ? kNone : open_.back().value};
  node.name = name_at, node.name_size = static_cast<std::uint32_t>(name.size());
  if (!open_.empty()) {
    node.position = static_cast<std::uint32_t>(found_.size() - open_.back().first);
    if (out_.nodes_[node.parent].kind == Kind::kObject) out_.members_.insert(hash_member(node.parent, name), id);
    found_.push_back(id);
  }
  const int c = peek();
  node.from = static_cast<std::uint32_t>(at_);
  const auto word = [&](std::string_view text, Kind kind) {
    if (!text_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    node.kind = kind;
    return true;
  };
  bool good = true;
  if (c == '{' || c == '[') {
    at_++;
    node.kind = c == '{' ? Kind::kObject : Kind::kArray;
    if (open_.size() == limits_.depth)
      return fail("the text is nested deeper than " + std::to_string(limits_.depth) + " levels");
    open_.push_back({id, found_.size()});
  } else if (c == '"') {
    node.kind = Kind::kString;
    good = string(&node.begin, &node.count);
  } else if (c == '-' || is_digit(c)) {
    node.kind = Kind::kNumber;
    good = number(&node);
  } else if (!word("null", Kind::kNull) && !word("true", Kind::kTrue) && !word("false", Kind::kFalse)) {
    good = fail(c < 0 ? "the text ends where a value is expected" : "a value is expected");
  }
  node.to = static_cast<std::uint32_t>(at_);
  out_.nodes_.push_back(node);
  return good;
}

bool DocumentParser::number(Document::Node* node) {
  const std::size_t begin = at_;
  const auto next = [&] { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1; };
  const auto digits = [&] {
    const std::size_t from = at_;
    while (is_digit(next())) at_++;
    return at_ > from;
  };
  if (next() == '-') at_++;
  if (next() == '0') {
    at_++;
    if (is_digit(next())) return fail("a number does not begin with 0");
  } else if (!digits()) {
    return fail("a digit is expected");
  }
  if (next() == '.' && (at_++, !digits())) return fail("a digit is expected");
  if (next() == 'e' || next() == 'E') {
    at_++;
    if (next() == '+' || next() == '-') at_++;
    if (!digits()) return fail("a digit is expected");
  }
  node->begin = static_cast<std::uint32_t>(out_.pool_.size());
  node->count = static_cast<std::uint32_t>(at_ - begin);
  out_.pool_.append(text_.substr(begin, at_ - begin));
  return true;
}

bool DocumentParser::string(std::uint32_t* begin, std::uint32_t* size) {
  *begin = static_cast<std::uint32_t>(out_.pool_.size());
  const std::size_t start = at_++;
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7F && c != '"' && c != '\\'; };
  for (;;) {
    const std::size_t first = at_;
    while (at_ < text_.size() && plain(text_[at_])) at_++;
    out_.pool_.append(text_.substr(first, at_ - first));
    if (at_ >= text_.size()) {
      at_ = start;
      return fail("this string does not end");
    }
    const char c = text_[at_];
    if (c == '"') break;
    if (static_cast<unsigned char>(c) < 0x20) return fail("a control character in a string: it must be escaped");
    if (c == '\\') {
      at_++;
      if (!escape()) return false;
    } else {
      const std::size_t from = at_;
      if (regex::decode_utf8(text_, &at_) == regex::kInvalidUtf8) {
        at_ = from;
        return fail("the text is not UTF-8");
      }
      out_.pool_.append(text_.substr(from, at_ - from));
    }
  }
  at_++;
  *size = static_cast<std::uint32_t>(out_.pool_.size()) - *begin;
  return true;
}

bool DocumentParser::escape() {
  static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  if (const std::size_t which = kNames.find(c); c != '\0' && which != std::string_view::npos) {
    out_.pool_.push_back(kMeanings[which]);
    at_++;
    return true;
  }
  if (c != 'u') return fail("an unknown escape");
  std::uint32_t code = 0, low = 0;
  if (!four_digits(&code)) return false;
  if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
    at_++;
    if (!four_digits(&low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return fail("half of a pair of surrogates");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  if (!regex::is_scalar(code)) return fail("half of a pair of surrogates");
  regex::encode_utf8(code, &out_.pool_);
  return true;
}

/// Reads the number after `\u`; the `u` is the next byte.
bool DocumentParser::four_digits(std::uint32_t* number) {
  *number = 0;
  at_++;
  for (int i = 0; i < 4; i++, at_++) {
    const char c = at_ < text_.size() ? text_[at_] : '\0', small = static_cast<char>(c | 0x20);
    if (is_digit(c))
      *number = *number * 16 + static_cast<std::uint32_t>(c - '0');
    else if (small >= 'a' && small <= 'f')
      *number = *number * 16 + static_cast<std::uint32_t>(small - 'a' + 10);
    else
      return fail("four hexadecimal digits are expected");
  }
  return true;
}

bool Document::parse(std::string_view text, const Limits& limits, std::string* error) {
  return append("", text, limits, error);
}

const std::string& Document::uri(Value value) const {
  const auto after = std::upper_bound(roots_.begin(), roots_.end(), value);
  return uris_[static_cast<std::size_t>(after - roots_.begin()) - 1];
}

bool Document::append(std::string_view uri, std::string_view text, const Limits& limits, std::string* error) {
  roots_.push_back(static_cast<Value>(nodes_.size()));
  uris_.emplace_back(uri);
  DocumentParser parser(text, limits, this);
  if (parser.run()) return true;
  *error = parser.error();
  return false;
}

Value Document::find(Value value, std::string_view name) const {
  if (!is(value, Kind::kObject)) return kNone;
  const std::uint32_t found = members_.find(hash_member(value, name), [&](std::uint32_t member) {
    return nodes_[member].parent == value && this->name(member) == name;
  });
  return found == HashIndex::kNone ? kNone : found;
}

std::string Document::pointer(Value value) const {
  std::vector<Value> path;
  for (Value at = value; nodes_[at].parent != kNone; at = nodes_[at].parent) path.push_back(at);
  std::string out;
  for (std::size_t i = path.size(); i-- > 0;) {
    out += '/';
    if (nodes_[nodes_[path[i]].parent].kind == Kind::kArray) {
      out += std::to_string(nodes_[path[i]].position);
      continue;
    }
    for (const char c : name(path[i]))
      if (c == '~')
        out += "~0";
      else if (c == '/')
        out += "~1";
      else
        out += c;
  }
  return out;
}

Value Document::at(Value from, std::string_view pointer) const {
  while (!pointer.empty()) {
    if (pointer[0] != '/') return kNone;
    const std::string_view part = pointer.substr(1, pointer.find('/', 1) - 1);
    pointer.remove_prefix(part.size() + 1);
    std::string name;
    for (std::size_t i = 0; i < part.size(); i++)
      if (part[i] == '~' && i + 1 < part.size() && (part[i + 1] == '0' || part[i + 1] == '1'))
        name += part[++i] == '0' ? '~' : '/';
      else
        name += part[i];
    if (nodes_[from].kind == Kind::kArray) {
      std::uint32_t index = 0;
      if (name.empty() || name.size() > 9 || (name.size() > 1 && name[0] == '0')) return kNone;
      for (const char c : name) {
        if (!is_digit(c)) return kNone;
        index = index * 10 + static_cast<std::uint32_t>(c - '0');
      }
      if (index >= nodes_[from].count) return kNone;
      from = child(from, index);
    } else if ((from = find(from, name)) == kNone) {
      return kNone;
    }
  }
  return from;
}

void append_json_string(std::string_view text, std::string* out) {
  static constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kShort = "\"\\bfnrt";
  *out += '"';
  for (const char c : text) {
    if (const std::size_t which = kPlain.find(c); which != std::string_view::npos) {
      *out += '\\';
      *out += kShort[which];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      *out += "\\u00";
      *out += "01"[c >> 4];
      *out += "0123456789abcdef"[c & 15];
    } else {
      *out += c;
    }
  }
  *out += '"';
}

}  // namespace aici::json_schema
