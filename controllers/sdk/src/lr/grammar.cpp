#include "aici/detail/lr/grammar.hpp"

namespace aici::lr {

std::string Grammar::item(std::uint32_t production, std::uint32_t dot) const {
  const Production& p = productions[production];
  std::string text = name(p.left) + " :";
  for (std::uint32_t i = 0; i <= p.right.size(); i++) {
    if (i == dot) text += " .";
    if (i < p.right.size()) text += " " + name(p.right[i]);
  }
  return text;
}

}  // namespace aici::lr
