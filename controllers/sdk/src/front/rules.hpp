// rules.hpp - what a grammar consists of, for the front ends of the context-free engine: patterns, repetitions, tokens,
// JSON schemas, and rules by name.
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
#include "source.hpp"

namespace aici::front {

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
