// json.hpp - reads a controller's JSON argument piece by piece. An error fails the controller with a message that gives
// the expected input and the byte offset.
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
#include <optional>
#include <string>
#include <string_view>

namespace aici {

class JsonReader {
 public:
  /// Messages name `what`. Both texts must outlive the reader.
  JsonReader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  /// Returns whether the next character other than a space is `c`, and if so, moves past it.
  bool accept(char c);
  /// Moves past `c`; otherwise fails with "`name` expected".
  void expect(char c, std::string_view name);
  /// Reads the separator after a member of a list or an object: returns true for a comma, false for `close`.
  bool more(char close);
  /// Returns the next character other than a space, without moving past it; -1 at the end.
  int peek();
  /// Reads a string and resolves its escapes. The result is UTF-8 if the text is.
  std::string string();
  /// Reads an integer from 0 to `most`, which must be below 100 million.
  std::uint32_t natural(std::uint32_t most);
  /// Reads a value of any kind and returns its text. Checks only that brackets are closed, and strings.
  std::string_view value();
  /// Fails if anything but spaces follows.
  void end();

  [[noreturn]] void fail(std::string_view problem) const;

 private:
  void escape(std::string* out);
  std::uint32_t four_digits();

  std::string_view text_, what_;
  std::size_t at_ = 0;
};

/// Returns the JSON schema of the arguments of the call `name`, for json_schema::make_or_fail. `answer`: the answer to
/// `call("aici.calls", "{}")`. Returns nothing if nobody answers the call, or if it has no schema.
std::optional<std::string> tool_arguments(std::string_view answer, std::string_view name);

}  // namespace aici
