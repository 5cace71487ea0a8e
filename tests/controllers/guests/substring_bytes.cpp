// substring_bytes: the output is a substring of the argument; it may cut characters and may be empty.
#include "aici/sdk.hpp"
#include "aici/substring.hpp"

namespace {

class SubstringBytes : public aici::RecognizerController<aici::Substrings> {
 public:
  explicit SubstringBytes(std::string_view argument)
      : RecognizerController(aici::Substrings(argument, aici::Substrings::Unit::bytes)) {}
};

}  // namespace

AICI_REGISTER(SubstringBytes);
