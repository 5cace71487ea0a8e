// chat.hpp - lets the chat of the prompt grow by messages, as the model's chat template writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aici/turns.hpp"
#include "sequence.hpp"

namespace script {

/// After each message the assistant's turn is open. A message that follows at once replaces this opening, since what a
/// template writes after a message depends on the next one.
class Chat {
 public:
  /// Appends a message; `name` is that of the tool. Fails if the template has no such message here.
  void append(Sequence& sequence, aici::Role role, std::string_view name, std::string_view content);

 private:
  /// The end of the last message: the text after position `from` is `text`, which ends the message's content.
  struct End {
    aici::Role role;
    std::size_t from;
    std::string text;
  };
  struct Opened {
    /// A label at the beginning of the answer.
    std::uint32_t mark;
    End end;
  };
  End find_end(const Sequence& sequence) const;
  bool answer_begins(const Sequence& sequence) const;

  std::vector<Opened> opened_;
};

}  // namespace script
