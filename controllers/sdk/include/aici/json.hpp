// json.hpp - reads the JSON of a controller argument, piece by piece. What is wrong fails the controller
// with a message that says what was expected, and at which byte.
//
//   aici::JsonReader json(argument, "the list of choices");
//   json.expect('[', "a list");
//   if (!json.accept(']'))
//     do texts.push_back(json.string());
//     while (json.more(']'));
//   json.end();
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace aici {

class JsonReader {
 public:
  /// `what` is named in messages; both must live as long as the reader.
  JsonReader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  /// Is this the next character that is no space? Moves past it if so.
  bool accept(char c);
  /// The same, and fails if it is not: "`name` expected".
  void expect(char c, std::string_view name);
  /// After a member of a list or an object: true at a comma, false at `close`, which ends it.
  bool more(char close);
  /// The next character that is no space, not moved past; -1 at the end.
  int peek();
  /// A string; its escapes are resolved. The result is UTF-8 if the text is.
  std::string string();
  /// A whole number from 0 to `most`, which is below 100 million.
  std::uint32_t natural(std::uint32_t most);
  /// Nothing may follow.
  void end();

  [[noreturn]] void fail(std::string_view problem) const;

 private:
  void escape(std::string* out);
  std::uint32_t four_digits();

  std::string_view text_, what_;
  std::size_t at_ = 0;
};

}  // namespace aici
