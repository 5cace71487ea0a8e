// choice without canonical spelling: any tokens may spell the texts, and their common prefix is forced.
#include "aici/json.hpp"
#include "aici/sdk.hpp"

namespace {

class AnySpelling : public aici::Choices {
 public:
  using Choices::Choices;
  void texts() const = delete;
};

class FreeChoice : public aici::RecognizerController<AnySpelling> {
 public:
  explicit FreeChoice(std::string_view argument) : RecognizerController(AnySpelling(read(argument))) {}

 private:
  static std::vector<std::string> read(std::string_view argument) {
    aici::JsonReader json(argument, "the list of texts");
    std::vector<std::string> texts;
    json.expect('[', "a list");
    do texts.push_back(json.string());
    while (json.more(']'));
    json.end();
    return texts;
  }
};

}  // namespace

AICI_REGISTER(FreeChoice);
