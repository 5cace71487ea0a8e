// Reads the statements of a grammar in the dialect of Lark.
#include <map>
#include <string_view>
#include <utility>

#include "aici.h"
#include "../front/patterns.hpp"
#include "body.hpp"
#include "common.hpp"
#include "syntax.hpp"
#include "words.hpp"

namespace aici::lark {

using front::Source;

namespace {

/// Attributes that do more than restrict the texts, with a replacement to suggest.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"stop", "`stop` removes its text, which a grammar cannot do: suffix=\"...\" ends with the same text "
             "and keeps it"},
    {"max_tokens", "`max_tokens` counts tokens, but a grammar describes text: limit the characters in the "
                   "pattern, as in /.{0,200}/"},
};

class Reader {
 public:
  explicit Reader(Source& source) : source_(source), body_(source, &out_.nodes) {
    for (skip_lark_blanks(source_); !source_.at_end(); skip_lark_blanks(source_))
      source_.peek() == '%' ? read_directive() : read_definition();
  }
  LarkSyntax take() { return std::move(out_); }

 private:
  Part next() const { return static_cast<Part>(out_.nodes.size()); }

  void read_definition() {
    const std::size_t at = source_.at();
    if (!at_lark_definition(source_)) source_.fail_here("a rule, `name: ...`, or a directive such as %ignore");
    while (source_.peek() == '?' || source_.peek() == '!') source_.move(1);
    const std::string name(take_lark_name(source_));
    const bool is_terminal = is_terminal_name(name);
    LarkDefinition made{name, at, next(), 0};
    skip_lark_spaces(source_);
    if (source_.peek() == '{') source_.fail(source_.at(), "templates are not supported: write a rule for each use");
    made.has_parameter = source_.accept("::_");
    if (made.has_parameter && is_terminal) source_.fail(at, "a terminal has no parameter: only rules have");
    read_priority();
    if (source_.peek() == '[') {
      if (is_terminal) source_.fail(source_.at(), "a terminal has no attributes: only rules have, whose names begin with a small letter");
      read_attributes(made);
    }
    read_priority();
    if (!source_.accept(":")) source_.fail_here("`:` after the name");
    made.body = body_.read(at);
    note(name, at);
    (is_terminal ? out_.terminals : out_.rules).push_back(std::move(made));
  }

  void note(const std::string& name, std::size_t at) {
    if (const auto [known, is_new] = places_.emplace(name, at); !is_new)
      source_.fail(at, "there is a definition of " + name + " already, in " + source_.place(known->second));
  }

  /// Skips a priority. It has no effect, since all lexemes that match are followed.
  void read_priority() {
    skip_lark_spaces(source_);
    if (!source_.accept(".")) return;
    source_.accept("-");
    if (!front::is_digit(source_.peek())) source_.fail_here("a number after `.`");
    while (front::is_digit(source_.peek())) source_.move(1);
    skip_lark_spaces(source_);
  }

  /// Reads attributes such as [lazy, suffix="x", capture].
  void read_attributes(LarkDefinition& made) {
    const std::size_t begin = source_.at();
    source_.move(1);
    for (;;) {
      skip_lark_blanks(source_);
      const std::size_t at = source_.at();
      const std::string_view name = take_lark_name(source_);
      skip_lark_spaces(source_);
      const bool has_value = source_.accept("=");
      skip_lark_spaces(source_);
      if (name == "lazy" && !has_value) {
        made.lazy = true;
      } else if (name == "suffix" && has_value) {
        made.lazy = true;
        made.suffix = body_.read_atom();
      } else if (name == "temperature" && has_value) {
        made.temperature = read_temperature();
      } else if (name == "capture" || (name == "stop_capture" && has_value)) {
        (name == "capture" ? made.capture : made.suffix_capture) = has_value ? read_capture() : made.name;
      } else {
        for (const auto& [refused, why] : kRefused)
          if (name == refused) source_.fail(at, why);
        source_.fail(at, "`" + std::string(name) + (has_value ? "=" : "") + "` is not an attribute; allowed are lazy, "
                         "suffix=\"...\", temperature=0.5, capture, capture=\"...\" and stop_capture=\"...\"");
      }
      skip_lark_blanks(source_);
      if (source_.accept("]")) break;
      if (!source_.accept(",")) source_.fail_here("`]` for the bracket of " + source_.place(begin));
    }
    if (!made.suffix_capture.empty() && !made.suffix)
      source_.fail(begin, "`stop_capture` is the name of the suffix: it needs suffix=\"...\" as well");
  }

  /// Reads the name of a capture.
  std::string read_capture() {
    constexpr std::size_t kMax = 100;
    const std::size_t at = source_.at();
    if (source_.peek() != '"') source_.fail_here("the name of the capture in double quotes");
    std::string name = take_lark_text(source_);
    if (name.empty() || name.size() > kMax) source_.fail(at, "the name of a capture has 1 to " + std::to_string(kMax) + " bytes");
    return name;
  }

  /// Returns the temperature as MidResult::with_temperature takes it.
  float read_temperature() {
    constexpr std::uint32_t kMax = 100;
    constexpr std::size_t kMaxDigits = 6;
    const std::size_t at = source_.at();
    if (!front::is_digit(source_.peek())) source_.fail_here("a number such as 0.5");
    auto value = static_cast<float>(front::take_number(source_, kMax));
    if (source_.accept(".")) {
      float unit = 1;
      const std::size_t from = source_.at();
      for (; front::is_digit(source_.peek()) && source_.at() - from < kMaxDigits; source_.move(1))
        value += static_cast<float>(source_.peek() - '0') * (unit /= 10);
    }
    if (value > kMax) source_.fail(at, "a temperature is at most 100");
    return value == 0 ? AICI_GREEDY : value;
  }

  void read_directive() {
    const std::size_t at = source_.at();
    source_.move(1);
    const std::string_view name = take_lark_name(source_);
    if (name == "ignore") {
      LarkDefinition made{"%ignore", at, next(), 0};
      made.body = body_.read(at);
      out_.ignored.push_back(std::move(made));
    } else if (name == "import") {
      read_import();
    } else if (name == "llguidance") {
      skip_lark_blanks(source_);
      take_lark_object(source_);
      front::warn(source_, at, "%llguidance is ignored");
    } else if (name == "declare") {
      source_.fail(at, "%declare is not supported: a terminal without a definition matches no text");
    } else {
      source_.fail(at, "`%" + std::string(name) + "` is unknown; allowed are %ignore and %import");
    }
  }

  /// Reads %import common.WS, optionally with `-> NAME`, or %import common (WS, INT).
  void read_import() {
    skip_lark_spaces(source_);
    const std::size_t at = source_.at();
    const std::string_view from = take_lark_name(source_);
    if (from != "common") source_.fail(at, "only `common` can be imported from, as in %import common.WS");
    skip_lark_spaces(source_);
    if (source_.accept("(")) {
      do import_one(true);
      while (source_.accept(","));
      if (!source_.accept(")")) source_.fail_here("`,` or `)`");
    } else {
      if (!source_.accept(".")) source_.fail_here("`.` and the name of a terminal");
      import_one(false);
    }
  }

  void import_one(bool in_list) {
    if (in_list) skip_lark_blanks(source_);
    const std::size_t at = source_.at();
    const std::string_view name = take_lark_name(source_);
    const char* pattern = common_terminal(name);
    if (pattern == nullptr)
      source_.fail(at, "common has no terminal `" + std::string(name) + "`: there are " + common_names());
    skip_lark_spaces(source_);
    std::string called(name);
    if (!in_list && source_.accept("->")) {
      skip_lark_spaces(source_);
      called = take_lark_name(source_);
    }
    if (!is_terminal_name(called)) source_.fail_here("the name of a terminal, which begins with a capital letter,");
    note(called, at);
    const Part first = next();
    out_.nodes.push_back({LarkNode::Kind::kPattern, at, std::string("(?:") + pattern + ")"});
    out_.terminals.push_back({called, at, first, first});
    if (in_list) skip_lark_blanks(source_);
  }

  Source& source_;
  LarkSyntax out_;
  LarkBody body_;
  std::map<std::string, std::size_t> places_;
};

}  // namespace

bool is_terminal_name(std::string_view name) {
  const std::size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

LarkSyntax read_lark(Source& source) { return Reader(source).take(); }

}  // namespace aici::lark
