// turns.hpp - lets a chat grow: what the model's own chat template writes between messages, as tokens.
//
//   if (!aici::has_turn(aici::Role::assistant, aici::Role::user)) aici::fail(...);
//   aici::TurnText text;
//   text.between(aici::Role::assistant, aici::Role::user);
//   text.content(aici::Role::user, "And tomorrow?");
//   text.between(aici::Role::user, aici::Role::assistant);
//   return aici::MidResult::splice(0, text.tokens());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/types.hpp"

namespace aici {

/// Who a message is from.
enum class Role : std::uint32_t { user, system, tool, assistant };

/// Returns why nothing is known about the model's chat template; empty if something is.
std::string_view turns_problem();
/// Returns whether the chat template takes a message of `after` behind one of `before`.
bool has_turn(Role before, Role after);

/// Returns whether the template writes a token as a control token. Contents have none of these.
bool is_control(TokenId token);

/// Messages and what the template writes between them. Between two control tokens, a text is tokenized as a whole, as
/// in a prompt.
class TurnText {
 public:
  /// Appends what is between the contents of two messages. After `assistant`, it begins with the end of the answer;
  /// before `assistant`, it ends where the answer begins. `tool` is the name that a tool's message has. Appends nothing
  /// if `has_turn` is false.
  void between(Role before, Role after, std::string_view tool = {});
  /// Appends a content, as the template writes it for this role. It becomes tokens of text only, also where it has the
  /// template's own markers in it.
  void content(Role role, std::string_view text);
  void append(std::string_view text) { open_ += text; }

  /// Return the tokens that further text does not change, and the text after them.
  const std::vector<TokenId>& settled() const { return settled_; }
  const std::string& open() const { return open_; }
  /// Returns all tokens. Fails if the vocabulary cannot spell a text.
  std::vector<TokenId> tokens();

 private:
  void tokenize_open();

  std::vector<TokenId> settled_;
  std::string open_;
};

}  // namespace aici
