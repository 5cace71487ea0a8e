// captures.hpp - tells the client the captures of a text, as variables of the request.
#pragma once

#include <span>
#include <string>

#include "aici/functional.hpp"

namespace aici::detail {

/// Writes the text of each capture to the variable of its name. Of several captures with one name, the last one is
/// there, and all of them, in order, in name[0], name[1] and so on. Writes a limited number of variables; beyond it, a
/// warning to the log.
void write_captures(std::span<const Capture> captures);

/// Appends the bytes of a token to a text as a recognizer reads it.
void append_token_text(TokenId token, std::string& text);

}  // namespace aici::detail
