// argument.hpp - the argument of a script controller: the script itself, or JSON around it.
#pragma once

#include <string>
#include <string_view>

namespace script {

struct Argument {
  /// The file's name, for messages.
  std::string name;
  std::string source;
  /// The script's own argument, as JSON.
  std::string value = "null";
};

/// Parses the argument. A text that begins with a brace is {"script": ..., "name": ..., "arg": any value}; any other
/// text is the script. Fails if it is invalid.
Argument read_argument(std::string_view text);

}  // namespace script
