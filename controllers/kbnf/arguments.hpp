// arguments.hpp - the argument of the controller: a grammar, or a grammar with options.
#pragma once

#include <string>
#include <string_view>

struct Arguments {
  std::string grammar;
  /// The output ends with the first token after which it is whole; else it may go on as long as the grammar
  /// allows, and ends where the model ends it.
  bool ends_when_whole = true;
};

/// Fails the controller if there is no grammar, or if there are options that are not known.
Arguments read_arguments(std::string_view argument);
