#include "tokens.hpp"

#include "aici/vocabulary.hpp"
#include "patterns.hpp"

namespace aici::front {

std::vector<TokenId> take_tokens(Source& source, std::string* text) {
  const std::size_t at = source.at();
  while (source.peek() != '>' && source.peek() != '\n' && !source.at_end()) source.move(1);
  if (!source.accept(">")) source.fail(at, "the name of this token is not closed: `>` is missing");
  const std::string_view name = source.since(at);
  const Vocabulary& vocab = vocabulary();
  std::vector<TokenId> all;
  if (!name.starts_with("<[")) {
    for (TokenId token = 0; token < vocab.size(); token++)
      if (vocab.token(token) == name) all.push_back(token);
    if (all.empty())
      source.fail(at, "the vocabulary has no token " + std::string(name) + ": if it is text, write \"" +
                          std::string(name) + "\"");
    all.resize(1);
  } else {
    const std::size_t end = source.at();
    source.go_to(at + 2);
    do {
      if (!is_digit(source.peek()))
        source.fail(source.at(), "numbers of tokens are written as in <[12,20-24]>; all others (`^`) and any (`*`) are not "
                                 "supported, since text is not written as tokens here");
      const TokenId first = take_number(source, vocab.size() - 1);
      TokenId last = first;
      if (source.accept("-")) last = is_digit(source.peek()) ? take_number(source, vocab.size() - 1) : 0;
      if (last < first || last - first >= kMaxTokens || all.size() >= kMaxTokens)
        source.fail(at, "a list has at most " + std::to_string(kMaxTokens) + " tokens, in rising order");
      for (TokenId token = first; token <= last; token++) all.push_back(token);
    } while (source.accept(","));
    if (!source.accept("]>") || source.at() != end) source.fail(at, "numbers of tokens are written as in <[12,20-24]>");
  }
  for (const TokenId token : all) {
    const std::string which = "token " + std::to_string(token);
    if (vocab.is_eos(token))
      source.fail(at, which + " ends the sequence: leave it out, since it is allowed where the text is complete");
    if (vocab.is_special(token)) continue;
    if (vocab.token(token).empty()) source.fail(at, which + " is not used by the vocabulary");
    if (all.size() > 1)
      source.fail(at, which + " is text, which a list of tokens may not have: write \"" +
                          std::string(vocab.token(token)) + "\" as an alternative");
    *text = vocab.token(token);
    return {};
  }
  return all;
}

cfg::Expr one_of(cfg::Grammar& grammar, const Source& source, const std::vector<TokenId>& tokens, std::size_t at) {
  std::vector<cfg::Expr> all;
  for (const TokenId token : tokens) all.push_back(grammar.token(token));
  if (grammar.tokens().size() > kMaxTokens)
    source.fail(at, "the grammar has more than " + std::to_string(kMaxTokens) + " special tokens");
  return grammar.choice(all);
}

}  // namespace aici::front
