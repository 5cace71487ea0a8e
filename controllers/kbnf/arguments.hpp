// arguments.hpp - the argument of the controller: a grammar, or a grammar with options.
#pragma once

#include <string>
#include <string_view>

struct Arguments {
  std::string grammar;
  /// Ends the output with the first token after which it is complete. Otherwise the model ends the output, wherever the
  /// grammar allows it.
  bool ends_when_whole = true;
};

/// Parses the argument. Fails the controller if it has no grammar or unknown options.
Arguments read_arguments(std::string_view argument);
