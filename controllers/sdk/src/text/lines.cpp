#include "aici/lines.hpp"

namespace aici {

std::vector<std::string> lines(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    found.emplace_back(line);
    text.remove_prefix(line.size() == text.size() ? line.size() : line.size() + 1);
  }
  return found;
}

}  // namespace aici
