// source.hpp - splits the text of a grammar into words, with positions for messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "../front/source.hpp"

namespace aici::yacc {

struct Word {
  enum class Kind : std::uint8_t {
    kEnd,
    kName,       ///< identifier
    kKeyword,    ///< quoted; `text` is without quotes and escapes
    kPattern,    ///< quoted, between slashes; `text` is the expression
    kDirective,  ///< %name; `text` includes the %
    kMark,       ///< : | ; or %%
    kNumber,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  std::size_t at = 0;

  bool is(std::string_view mark) const { return kind == Kind::kMark && text == mark; }
};

/// Errors fail the controller, with line and column.
class Source {
 public:
  explicit Source(std::string_view text) : text_(text), places_(text) { advance(); }

  const Word& word() const { return word_; }
  /// Returns the current word and moves to the next one.
  Word take();
  bool accept(std::string_view mark);
  void expect(std::string_view mark, std::string_view where);
  [[noreturn]] void fail(std::size_t at, std::string_view problem) const { places_.fail(at, problem); }
  /// Returns "line 3, column 7".
  std::string place(std::size_t at) const { return places_.place(at); }

 private:
  void advance();
  void skip_blanks();
  void quoted(char quote);
  void unescape(std::size_t at, std::string_view raw);

  std::string_view text_;
  front::Source places_;
  std::size_t at_ = 0;
  Word word_;
};

}  // namespace aici::yacc
