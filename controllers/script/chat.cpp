#include "chat.hpp"

#include <algorithm>
#include <utility>

#include "aici/host.hpp"

namespace script {

using aici::Role;
using Tokens = std::span<const aici::TokenId>;

namespace {

constexpr const char* kMessages[] = {"a user's message", "a system message", "a tool's result", "an answer"};

bool ends_with(Tokens tokens, Tokens end) {
  return end.size() <= tokens.size() && std::equal(end.begin(), end.end(), tokens.last(end.size()).begin());
}

std::vector<aici::TokenId> opening() {
  aici::TurnText text;
  text.between(Role::user, Role::assistant);
  return text.tokens();
}

/// Fails unless the tokens are a chat of this template: control tokens after which answers begin must be there.
void check_chat(Tokens tokens) {
  const std::vector<aici::TokenId> opens = opening();
  const auto first = std::find_if(opens.begin(), opens.end(), aici::is_control);
  const auto last = std::find_if(opens.rbegin(), opens.rend(), aici::is_control).base();
  if (first < last && std::search(tokens.begin(), tokens.end(), first, last) == tokens.end())
    aici::fail("the prompt is not a chat in the model's own template, so no message can follow: send it as a chat");
}

void check_turn(Role before, Role after) {
  if (aici::has_turn(before, after) && aici::has_turn(after, Role::assistant)) return;
  const std::string_view problem = aici::turns_problem();
  std::string message;
  if (!problem.empty()) {
    message = "a chat cannot grow here: ";
    message += problem;
    message += ". Write the model's control tokens yourself, with force([...])";
  } else {
    message = "the model's chat template has no place for ";
    message += kMessages[static_cast<std::size_t>(after)];
    message += " after ";
    message += kMessages[static_cast<std::size_t>(before)];
    if (after == Role::tool) message += ", or needs more for it than a name and the result";
  }
  aici::fail(message);
}

}  // namespace

bool Chat::answer_begins(const Sequence& sequence) const {
  return !opened_.empty() && sequence.place(opened_.back().mark) == sequence.size();
}

Chat::End Chat::find_end(const Sequence& sequence) const {
  const Tokens tokens = sequence.tokens();
  if (answer_begins(sequence)) return opened_.back().end;
  if (opened_.empty() && tokens.size() == sequence.prompt_size()) {
    const std::vector<aici::TokenId> opens = opening();
    if (!opens.empty() && ends_with(tokens, opens))
      return {Role::user, tokens.size() - opens.size(), {}};
  }
  return {Role::assistant, tokens.size(), {}};
}

void Chat::append(Sequence& sequence, Role role, std::string_view name, std::string_view content) {
  while (!opened_.empty() && sequence.place(opened_.back().mark) == Sequence::kGone) opened_.pop_back();
  if (role == Role::assistant && answer_begins(sequence)) return;
  End end = find_end(sequence);
  check_turn(end.role, role);
  if (opened_.empty()) check_chat(sequence.tokens());

  aici::TurnText text;
  text.append(end.text);
  text.between(end.role, role, name);
  End next = end;
  if (role != Role::assistant) {
    text.content(role, content);
    next = {role, text.settled().size(), text.open()};
    text.between(role, Role::assistant);
  }
  const std::vector<aici::TokenId> tokens = text.tokens();
  // the model may have written the end of its answer itself
  if (end.from == sequence.size() && !tokens.empty() && aici::is_control(tokens.front())) {
    std::size_t written = std::min(tokens.size(), sequence.size());
    while (!ends_with(sequence.tokens(), Tokens(tokens).first(written))) written--;
    end.from -= written;
  }
  if (role != Role::assistant) next.from += end.from;
  if (!sequence.replace(end.from, tokens))
    aici::fail("this engine cannot backtrack, and the model has read the end of the last message: write messages that "
               "follow each other without an action between them");
  opened_.push_back({sequence.mark(), std::move(next)});
}

}  // namespace script
