// rules.hpp - the text of a grammar, and what it consists of, for the front ends of the context-free engine: patterns,
// repetitions, tokens, JSON schemas, and rules by name.
//
// Errors fail the controller with a message such as "line 3, column 7: ...".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/regex/regex.hpp"
#include "aici/types.hpp"

namespace aici::front {

class Source {
 public:
  /// Fails if the text is not well-formed UTF-8.
  explicit Source(std::string_view text);

  std::size_t at() const { return at_; }
  bool at_end() const { return at_ >= text_.size(); }
  /// Returns '\0' beyond the end.
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool next_is(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool accept(std::string_view what);
  void move(std::size_t bytes) { at_ += bytes; }
  void go_to(std::size_t at) { at_ = at; }
  /// Returns the character here and moves past it. Must not be called at the end.
  char32_t take_character();
  /// Returns the text from `from` to here.
  std::string_view since(std::size_t from) const { return text_.substr(from, at_ - from); }
  /// Returns the whole text.
  std::string_view all() const { return text_; }
  /// Moves to the next occurrence of `what`; if there is none, moves to the end and returns false.
  bool find(std::string_view what);

  [[noreturn]] void fail(std::size_t at, std::string_view problem) const;
  /// As above, with the text at this position in the message: "`x` is not ...".
  [[noreturn]] void fail_here(std::string_view expected) const;
  /// Returns "line 3, column 7"; columns count characters.
  std::string place(std::size_t at) const;

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
/// Returns whether a byte may be part of a name in any formalism: a letter, a digit or `_`.
inline bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_'; }
/// Returns the value of a hexadecimal digit, or -1.
int hex_digit(char c);

/// Reads a decimal number; fails if it is above `most`. The next byte must be a digit.
std::uint32_t take_number(Source& source, std::uint32_t most);
/// Reads a character from exactly `digits` hexadecimal digits; fails if there are fewer, or if it is not a character.
/// `escape` is the position of the escape.
char32_t take_hex(Source& source, std::size_t digits, std::size_t escape);

/// As above, but fails for a surrogate, which is half a character.
char32_t take_scalar(Source& source, std::size_t digits, std::size_t escape);

/// Reads a character from four hexadecimal digits; a surrogate needs the escape of the other one after it.
char32_t take_utf16(Source& source, std::size_t escape);
/// Appends a character as UTF-8.
void append_utf8(char32_t character, std::string* out);

/// Alternatives of sequences of items, in nested brackets, without recursion, since the call stack
/// is small. The outermost level is the body of a rule.
template <class Item>
class Nest {
 public:
  using Sequence = std::vector<Item>;
  struct Level {
    char close = '\0';     ///< the bracket that ends it; '\0' of the outermost one
    std::size_t at = 0;    ///< where it begins
    std::vector<Sequence> alternatives{Sequence()};
  };
  static constexpr std::size_t kMaxLevels = 10'000;

  Nest() : levels_(1) {}

  bool inside() const { return levels_.size() > 1; }
  char close() const { return levels_.back().close; }
  Sequence& sequence() { return levels_.back().alternatives.back(); }
  void next_alternative() { levels_.back().alternatives.emplace_back(); }
  void open(const Source& source, char close, std::size_t at) {
    if (levels_.size() > kMaxLevels)
      source.fail(at, "brackets are nested deeper than " + std::to_string(kMaxLevels) + ": move some into a rule");
    levels_.push_back({close, at});
  }
  /// Ends the innermost level.
  Level pop() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return level;
  }
  /// Returns whether the contents of the bracket that has just ended must become a rule. Some must, since the passes
  /// over expressions recurse.
  bool is_deep() const { return levels_.size() % kLevelsOfRule == 0; }
  /// Fails with the message that the innermost bracket is not closed here.
  [[noreturn]] void fail_open(const Source& source) const {
    const Level& level = levels_.back();
    source.fail_here(std::string("`") + level.close + "` for the bracket of " + source.place(level.at));
  }

 private:
  static constexpr std::size_t kLevelsOfRule = 50;

  std::vector<Level> levels_;
};

/// Which texts of a regular expression are meant.
enum class Texts : std::uint8_t {
  kAll,
  kLexemes,  ///< Regex::lexeme
  kWithout,  ///< nonempty ones no part of which matches
};

/// Compiles a regular expression in a grammar. `place` maps a byte of the expression to its position in the grammar, for
/// messages. Returns nothing if no text matches.
std::optional<regex::Regex> read_pattern(const Source& source, std::string_view pattern, Texts texts,
                                         const std::function<std::size_t(std::size_t)>& place);

/// A regular expression for one character, and for a text, which must be UTF-8. Of flags around it only i matters.
std::string pattern_of(char32_t character);
std::string pattern_of(std::string_view text);

/// Adds a rule for `expr`; `name` is its name in messages.
cfg::Expr as_rule(cfg::Grammar& grammar, cfg::Expr expr, std::string_view name);

/// Repeats `expr`. A long expression gets its own rule, so that nested repetitions do not multiply.
cfg::Expr repeated(cfg::Grammar& grammar, cfg::Expr expr, std::uint32_t least, std::uint32_t most,
                   std::string_view name);

/// Logs a warning with its position.
void warn(const Source& source, std::size_t at, std::string_view problem);

/// Maximum number of special tokens in a list, and in a grammar, since each is tried for each mask.
inline constexpr std::size_t kMaxTokens = 256;

/// Reads a token, such as <think> or <[12,20-24]>. Returns the special tokens that it stands for; for one token of text,
/// stores its text instead. Fails if the vocabulary has no such token.
std::vector<TokenId> take_tokens(Source& source, std::string* text);
/// Returns any of these special tokens. Fails if the grammar then has too many.
cfg::Expr one_of(cfg::Grammar& grammar, const Source& source, const std::vector<TokenId>& tokens, std::size_t at);

/// Adds the texts of a schema, in the spelling that docs/json_schema.md describes, independent of the grammar's
/// lexemes. Fails with the position `at` if the schema is refused. With `plain`, the schema's strings have no quotes
/// and escapes.
cfg::Expr read_schema(const Source& source, std::size_t at, std::string_view schema, cfg::Grammar& grammar,
                      bool plain = false);

/// The rules of a grammar that is being read, by name. Names may be used before they are defined.
class Rules {
 public:
  struct Named {
    cfg::Rule rule;
    bool defined = false;
    std::size_t at;  ///< position of the definition, or else of the first use
    std::vector<cfg::Rule> calls{};
    bool quiet = false;  ///< no warning about it is logged
  };

  Rules(const Source& source, cfg::Grammar& grammar) : source_(source), grammar_(grammar) {}

  /// Enters the rule with this name, to which the following calls refer. Entering it again adds alternatives.
  void enter(std::string_view name, std::size_t at, bool quiet = false);
  /// Adds an alternative to the current rule.
  void define(cfg::Expr body) { grammar_.define(current_->rule, body); }
  /// Returns a call of the rule with this name from the current rule.
  cfg::Expr call(std::string_view name, std::size_t at);
  const Named* find(std::string_view name) const;
  /// Returns "; did you mean x?", or an empty string.
  std::string suggestion(std::string_view name) const;

  /// Fails if a rule is used and not defined, or if there is no rule `start`.
  void check_names(std::string_view start) const;
  /// Fails if `start` has no text. Logs the rules that are not used, and those without a text.
  void check_texts(std::string_view start) const;

 private:
  using Entry = std::pair<const std::string, Named>;

  std::vector<const Entry*> in_order() const;
  Named& named(std::string_view name, std::size_t at);
  /// Returns, by number, the rules that texts of `start` may use.
  std::vector<bool> used_by(const Named& start) const;
  const Source& source_;
  cfg::Grammar& grammar_;
  std::map<std::string, Named, std::less<>> rules_;
  Named* current_ = nullptr;
};

/// Returns the element of `names` that is most similar to `name`; empty if none is similar.
std::string_view nearest(std::string_view name, const std::vector<std::string_view>& names);

}  // namespace aici::front
