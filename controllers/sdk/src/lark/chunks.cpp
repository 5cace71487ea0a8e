#include "chunks.hpp"

#include "aici/json.hpp"

namespace aici::lark {

namespace {

/// Words consist of letters, digits, underscores and characters beyond ASCII; all other characters stand alone.
std::vector<std::string> cut(const std::string& text, bool words) {
  std::vector<std::string> chunks;
  bool in_word = false;
  front::Source rest(text);
  while (!rest.at_end()) {
    const std::size_t from = rest.at();
    const char32_t c = rest.take_character();
    const bool is_word = words && (c >= 0x80 || front::is_word(static_cast<char>(c)));
    if (is_word && in_word)
      chunks.back().append(rest.since(from));
    else
      chunks.emplace_back(rest.since(from));
    in_word = is_word;
  }
  return chunks;
}

}  // namespace

bool read_chunks(const front::Source& source, std::string_view object, std::size_t at,
                 std::vector<std::string>* chunks) {
  const std::string what = "%regex in " + source.place(at);
  JsonReader json(object, what);
  json.expect('{', "an object");
  const std::string key = json.string();
  json.expect(':', "a colon");
  if (key == "substring_chars" || key == "substring_words") {
    *chunks = cut(json.string(), key == "substring_words");
  } else if (key == "substring_chunks") {
    json.expect('[', "a list of texts");
    if (!json.accept(']')) {
      do chunks->push_back(json.string());
      while (json.more(']'));
    }
  } else {
    source.fail(at, "%regex has one of substring_chars, substring_words and substring_chunks, not " + key);
  }
  json.expect('}', "the end of the object: it has one member");
  json.end();
  return key == "substring_chars";
}

}  // namespace aici::lark
