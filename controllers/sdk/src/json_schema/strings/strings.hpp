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

/// The number of characters of a text.
std::uint32_t length(std::string_view text);

class Strings {
 public:
  /// `plain`: strings are written as they are, without quotes and escapes.
  explicit Strings(bool plain) : plain_(plain) {}

  /// The expression that a pattern is, or that a format stands for; its `problem` says if there is none.
  const Pattern& read(std::string_view text, bool format);
  /// Does the string match it? Nothing if that cannot be told.
  std::optional<bool> matches(std::string_view text, bool format, std::string_view string);

  /// What strings of a branch look like, between their quotes if they have some, as a pattern of aici/regex;
  /// not_strings are not looked at. Nothing, and `problem`, if there is no pattern of modest size. `assertive`: it must
  /// not be put together with others. `limits`: to be compiled with these.
  struct Language {
    std::string pattern;
    bool assertive = false;
    /// If `counted`: the characters that a text has, beside the pattern.
    bool counted = false;
    std::uint32_t least = 0, most = kUnlimited;
  };
  /// Where lengths are: counted beside the pattern; if that fails only the upper one; if that fails too, in the pattern.
  enum class Lengths : std::uint8_t { kCounted, kUpperCounted, kWrittenOut };
  std::optional<Language> language(const Branch& branch, Lengths lengths, const Branch::Text** cause,
                                   std::string* problem);
  /// Does it compile? `empty`: it matches nothing.
  static std::optional<regex::Regex> compile(std::string_view pattern, bool* empty, std::string* problem);

 private:
  struct Known {
    Pattern pattern;
    /// One for each part, made when they are first needed.
    std::vector<std::optional<regex::Regex>> compiled;
    bool failed = false;
  };
  Known& known(std::string_view text, bool format);

  bool plain_;
  std::map<std::pair<std::string, bool>, Known> known_;
};

}  // namespace aici::json_schema
