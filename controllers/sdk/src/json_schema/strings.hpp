// strings.hpp - patterns and formats of strings, read and compiled once each.
//
// A regular expression of ECMAScript, as in `pattern`, becomes a pattern of aici/regex. It matches the text of a JSON
// string, with characters as append_json_string writes them, or a plain text.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "aici/detail/regex/automaton.hpp"
#include "aici/regex/regex.hpp"
#include "branch.hpp"

namespace aici::json_schema {

inline constexpr std::uint32_t kUnlimited = 0xffffffff;

/// Return a pattern for any character of a JSON string or of a `plain` text, and for any sequence of such characters.
const std::string& any_character(bool plain);
const std::string& any_text(bool plain);

struct Pattern {
  /// Why the expression is not supported; empty if it is.
  std::string problem;
  /// For the whole string, without its quotes.
  std::string text;
  /// Whether it has assertions or look-arounds, so that it cannot be inside (?not:...).
  bool assertive = false;
  /// Bounds on the number of characters of a match. The actual bounds may be narrower.
  std::uint32_t min_length = 0, max_length = kUnlimited;
  /// Set if the pattern is a fixed number of characters around one repetition of a class: the part before it, the
  /// class, the part after it, the fixed number of characters, and the bounds of the repetition.
  struct Stretch {
    bool known = false;
    std::string before, unit, after;
    std::uint32_t fixed = 0, least = 0, most = kUnlimited;

    bool is_long(std::uint32_t than) const { return least > than || (most != kUnlimited && most > than); }
  } stretch;
};

/// `plain`: for a text without escapes.
Pattern read_ecma(std::string_view source, bool plain);

/// A parsed regular expression of ECMAScript, by its parts.
struct EcmaNode {
  enum class Kind : std::uint8_t {
    kClass,      ///< one character of `set`
    kConcat,     ///< the children, one after the other
    kAlternate,  ///< one of the children
    kRepeat,     ///< the child `min` to `max` times
    kStart,
    kEnd,
    kBoundary,
    kNoBoundary,
    kAhead,      ///< (?=...)
    kNotAhead,   ///< (?!...)
    kBehind,     ///< (?<=...)
    kNotBehind,  ///< (?<!...)
  };
  Kind kind;
  std::uint32_t set = 0;
  std::uint32_t min = 0, max = 0;
  std::vector<std::uint32_t> children;
};

/// The whole expression. Children come before their parents; the last node is the whole.
struct EcmaTree {
  std::vector<EcmaNode> nodes;
  std::vector<regex::CodepointSet> sets;
};

/// Parses an expression, mostly as with the flag `u`. If it is malformed or not supported, returns false and sets
/// `problem`.
bool parse_ecma(std::string_view source, EcmaTree* tree, std::string* problem);

/// A format of `format`: of strings, as a pattern of ECMAScript, or of numbers.
struct Format {
  std::string_view name;
  /// Empty if every string is allowed.
  std::string_view pattern;
  /// For the negation: all texts that a validator might take for one of the format; empty if that is `pattern`.
  std::string_view wide = {};
  /// For numbers: the bounds of an integer; empty if the format is not about numbers.
  std::string_view low = {}, high = {};

  bool of_integers() const { return !low.empty(); }
};

/// Returns null if there is no format of this name.
const Format* find_format(std::string_view name);

/// Returns the known format of which an unknown name looks like a misspelling; empty if there is none.
std::string_view similar_format(std::string_view name);

/// Returns the number of characters of a text.
std::uint32_t length(std::string_view text);

class Strings {
 public:
  /// `plain`: strings are written without quotes and escapes.
  Strings(bool plain, bool refuse_unknown_formats)
      : plain_(plain), refuse_unknown_formats_(refuse_unknown_formats) {}

  /// Returns the expression of a pattern or of a format. If there is none, its `problem` has the reason. For a format
  /// that must not be met, `negated`, the expression also matches texts that resemble the format.
  const Pattern& read(std::string_view text, bool format, bool negated = false);
  /// Returns whether a format is not known and ignored, as JSON Schema says. A misspelled one is not ignored.
  bool ignores_format(std::string_view name) const;
  /// Returns whether the string matches; nothing if that cannot be decided.
  std::optional<bool> matches(std::string_view text, bool format, std::string_view string, bool negated = false);
  /// Returns whether the string certainly matches, or, if the text is negated, certainly does not.
  bool meets(const Branch::Text& text, std::string_view string) {
    return matches(text.text, text.format, string, text.negated).value_or(text.negated) != text.negated;
  }

  /// The strings of a branch, between their quotes if they have some, as a pattern of aici/regex. Ignores not_strings.
  /// If there is no pattern of moderate size, returns nothing and sets `problem`. `assertive`: it examines its
  /// surroundings.
  struct Language {
    std::string pattern;
    bool assertive = false;
    /// The limits on the number of characters, in addition to the pattern, if `counted`.
    bool counted = false;
    std::uint32_t least = 0, most = kUnlimited;
  };
  /// How lengths are enforced: counted outside the pattern; or only the upper one counted; or written out in the
  /// pattern. Callers try them in this order.
  enum class Lengths : std::uint8_t { kCounted, kUpperCounted, kWrittenOut };
  std::optional<Language> language(const Branch& branch, Lengths lengths, const Branch::Text** cause,
                                   std::string* problem);
  /// Returns whether no string matches both patterns of a branch that has two; false if that takes more than a look.
  bool exclude_each_other(const Branch& branch);
  /// Compiles a pattern; returns null if it is too large or `empty`: matches nothing.
  static std::shared_ptr<regex::Regex> compile(std::string_view pattern, bool* empty, std::string* problem);
  /// Sets whether the automata of patterns are kept that are compiled from now on. Later, `compile` returns each of them
  /// once.
  static void keep_compiled(bool keep);

 private:
  struct Known {
    Pattern pattern;
    /// Compiled when it is first needed; null if nothing matches.
    std::shared_ptr<regex::Regex> automaton{};
    bool compiled = false, failed = false;
  };
  Known& known(std::string_view text, bool format, bool negated);

  bool plain_, refuse_unknown_formats_;
  std::map<std::tuple<std::string, bool, bool>, Known> known_;
  std::map<std::pair<std::string_view, std::string_view>, bool> excluding_;
};

}  // namespace aici::json_schema
