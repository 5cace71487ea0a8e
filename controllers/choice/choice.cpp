// choice: the model writes one of several texts.
//
// The argument is a JSON list of strings, or one text per line. A text begins directly after the prompt. If the model
// would put a space first (for example after "The capital is"), the texts should begin with a space.
#include "aici/sdk.hpp"
#include "text_list.hpp"

namespace {

aici::Choices choices(std::string_view argument) {
  const std::vector<std::string> texts = read_text_list(argument);
  if (texts.empty())
    aici::fail("choice needs at least one text: a JSON list of strings such as [\"yes\", \"no\"], or one text per line");
  return aici::Choices(texts);
}

class Choice : public aici::RecognizerController<aici::Choices> {
 public:
  explicit Choice(std::string_view argument) : RecognizerController(choices(argument)) {}
};

}  // namespace

AICI_REGISTER(Choice);
