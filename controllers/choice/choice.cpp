// choice: the model writes one of several texts.
//
// The argument lists them: a JSON list of strings, or one a line. A text begins right behind the prompt: where
// the model would put a space first (after "The capital is", say) the texts should begin with one.
#include "aici/sdk.hpp"
#include "text_list.hpp"

namespace {

aici::Choices choices(std::string_view argument) {
  const std::vector<std::string> texts = read_text_list(argument);
  if (texts.empty())
    aici::fail("choice needs at least one text: a JSON list of strings such as [\"yes\", \"no\"], or one text a line");
  return aici::Choices(texts);
}

class Choice : public aici::RecognizerController<aici::Choices> {
 public:
  explicit Choice(std::string_view argument) : RecognizerController(choices(argument)) {}
};

}  // namespace

AICI_REGISTER(Choice);
