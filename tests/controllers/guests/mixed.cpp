// A constraint in a controller that also splices. The argument is a line with the texts of the constraint, separated by
// `|`, then a line for each step: next, next twice, own TEXT (spliced, part of the constrained text), aside TEXT
// (spliced, not part of it). Tokens in the step after `aside` are not passed to the constraint.
#include "aici/sdk.hpp"

namespace {

std::vector<std::string> split(std::string text) {
  for (char& c : text)
    if (c == '|') c = '\n';
  return aici::lines(text);
}

class Mixed : public aici::Controller {
 public:
  explicit Mixed(std::string_view argument)
      : lines_(aici::lines(argument)), constraint_(aici::Choices(split(lines_[0]))) {}

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    if (!aside_) constraint_.append(aici::step().tokens());
    aside_ = false;
    const std::string& line = lines_[next_++];
    if (line == "next") return constraint_.next();
    if (line == "next twice") return constraint_.next(), constraint_.next();
    aside_ = line.starts_with("aside ");
    return aici::MidResult::splice(0, aici::tokenize(line.substr(line.find(' ') + 1)));
  }

 private:
  std::vector<std::string> lines_;
  aici::Constraint<aici::Choices> constraint_;
  std::size_t next_ = 1;
  bool aside_ = false;
};

}  // namespace

AICI_REGISTER(Mixed);
