// source.hpp - reads the text of a grammar, with positions for messages, and keeps its open brackets.
//
// Errors fail the controller with a message such as "line 3, column 7: ...".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

}  // namespace aici::front
