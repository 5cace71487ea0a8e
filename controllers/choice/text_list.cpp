#include "text_list.hpp"

#include "aici/json.hpp"
#include "aici/text.hpp"

namespace {

std::vector<std::string> read_json(std::string_view argument) {
  aici::JsonReader json(argument, "the list of choices");
  std::vector<std::string> texts;
  json.expect('[', "a list");
  if (!json.accept(']'))
    do texts.push_back(json.string());
    while (json.more(']'));
  json.end();
  return texts;
}

}  // namespace

std::vector<std::string> read_text_list(std::string_view argument) {
  if (argument.starts_with('[')) return read_json(argument);
  std::vector<std::string> texts = aici::lines(argument);
  std::erase(texts, std::string());
  return texts;
}
