// strings.hpp - patterns and formats of strings, read and compiled once each.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "aici/regex/regex.hpp"
#include "../branch.hpp"
#include "ecma.hpp"

namespace aici::json_schema {

/// Returns the number of characters of a text.
std::uint32_t length(std::string_view text);

class Strings {
 public:
  /// `plain`: strings are written without quotes and escapes.
  Strings(bool plain, bool refuse_unknown_formats)
      : plain_(plain), refuse_unknown_formats_(refuse_unknown_formats) {}

  /// Returns the expression of a pattern or of a format. If there is none, its `problem` has the reason.
  const Pattern& read(std::string_view text, bool format);
  /// Returns whether a format is not known and ignored, as JSON Schema says. A misspelled one is not ignored.
  bool ignores_format(std::string_view name) const;
  /// Returns whether the string matches; nothing if that cannot be decided.
  std::optional<bool> matches(std::string_view text, bool format, std::string_view string);

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
  /// Compiles a pattern; returns null if it is too large or `empty`: matches nothing.
  static std::shared_ptr<regex::Regex> compile(std::string_view pattern, bool* empty, std::string* problem);
  /// Keeps the automata of all patterns that `use` compiles; later, `compile` returns each of them once.
  static void prepare(void (*use)());

 private:
  struct Known {
    Pattern pattern;
    /// Compiled when it is first needed; null if nothing matches.
    std::shared_ptr<regex::Regex> automaton{};
    bool compiled = false, failed = false;
  };
  Known& known(std::string_view text, bool format);

  bool plain_, refuse_unknown_formats_;
  std::map<std::pair<std::string, bool>, Known> known_;
};

}  // namespace aici::json_schema
