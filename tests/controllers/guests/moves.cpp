// A string recognizer defined by its argument. Lines: "<state> <may end: 0 or 1> <string>><next state> ..."
#include <algorithm>

#include "aici/sdk.hpp"

namespace {

struct Move {
  std::string text;
  int next;
};
struct Place {
  bool may_end = false;
  std::vector<Move> moves;
};

class Moves {
 public:
  using State = int;

  explicit Moves(std::string_view argument) {
    while (!argument.empty()) {
      std::string_view line = take(&argument, '\n');
      const int state = digit(take(&line, ' '));
      if (static_cast<std::size_t>(state) >= places_.size())
        places_.resize(static_cast<std::size_t>(state) + 1);
      Place& place = places_[static_cast<std::size_t>(state)];
      place.may_end = take(&line, ' ') == "1";
      while (!line.empty()) {
        std::string_view move = take(&line, ' ');
        const std::string text(take(&move, '>'));
        place.moves.push_back({text, digit(move)});
      }
    }
  }

  State initial() { return 0; }
  State append(State state, std::string_view text) {
    for (const Move& move : at(state).moves)
      if (move.text == text) return move.next;
    aici::fail("append is asked for a string that is not allowed");
  }
  std::vector<std::string> allowed(State state) {
    std::vector<std::string> texts;
    for (const Move& move : at(state).moves) texts.push_back(move.text);
    return texts;
  }
  std::vector<aici::SpecialToken> special_allowed(State state) {
    if (at(state).may_end) return {aici::SpecialToken::eos};
    return {};
  }

 private:
  static std::string_view take(std::string_view* text, char separator) {
    const std::size_t end = std::min(text->find(separator), text->size());
    const std::string_view head = text->substr(0, end);
    text->remove_prefix(std::min(end + 1, text->size()));
    return head;
  }
  static int digit(std::string_view text) { return text[0] - '0'; }
  Place& at(State state) { return places_[static_cast<std::size_t>(state)]; }

  std::vector<Place> places_;
};

class Player : public aici::RecognizerController<aici::StringStack<Moves>> {
 public:
  explicit Player(std::string_view argument)
      : RecognizerController(aici::StringStack<Moves>(Moves(argument))) {}
};

}  // namespace

AICI_REGISTER(Player);
