// A constraint for several texts: where tokens are removed, a new text begins. It prints whether the text has ended and
// whether it may end, and the bytes of cached answers.
//
// The argument is a line of words, then the source of the constraint. The first word is its kind; others:
// `anew` (each text has a new constraint, on the heap), `late` (the first one is made in a step, not in the
// constructor), `whole` (a text ends where it is complete), `little` (few answers are cached), `tight` (recognizers
// drop their states as soon as they can), `crowd` (others are created before and after the first, and destroyed at once).
#include <algorithm>
#include <cstdio>

#include "aici/cfg/parser.hpp"
#include "aici/gbnf/gbnf.hpp"
#include "aici/json_schema/make.hpp"
#include "aici/kbnf/kbnf.hpp"
#include "aici/lark/lark.hpp"
#include "aici/lr/yacc.hpp"
#include "aici/quotation.hpp"
#include "aici/regex/regex.hpp"
#include "aici/sdk.hpp"
#include "aici/substring.hpp"

namespace {

// Matching brackets, as a byte stack that can only be popped. Its keys are numbered in the order of their first use.
class Brackets : public aici::Recognizer {
 public:
  void push_byte(std::uint8_t byte) override { texts_.push_back(next(byte)); }
  void pop_bytes(std::uint32_t count) override { texts_.resize(texts_.size() - count); }
  void collapse() override { texts_ = {texts_.back()}; }
  bool byte_allowed(std::uint8_t byte) override {
    const char closing = byte == ')' ? '(' : byte == ']' ? '[' : '\0';
    return closing == '\0' || (!texts_.back().empty() && texts_.back().back() == closing);
  }
  bool special_allowed(aici::SpecialToken token) override {
    return token == aici::SpecialToken::eos && texts_.back().empty();
  }
  std::uint64_t state_key() {
    const auto known = std::find(keys_.begin(), keys_.end(), texts_.back());
    const auto key = known - keys_.begin();
    if (known == keys_.end()) keys_.push_back(texts_.back());
    return static_cast<std::uint64_t>(key) + 1;
  }

 private:
  std::string next(std::uint8_t byte) const {
    std::string open = texts_.back();
    if (byte == '(' || byte == '[') open.push_back(static_cast<char>(byte));
    if (byte == ')' || byte == ']') open.pop_back();
    return open;
  }

  std::vector<std::string> texts_{""};  // the open brackets
  std::vector<std::string> keys_;
};

// As above, with restart.
class Restarting final : public Brackets {
 public:
  void restart() { static_cast<Brackets&>(*this) = Brackets(); }
  std::uint64_t state_key() = delete;
};
static_assert(aici::StackRestart<Restarting> && !aici::StackRestart<Brackets>);
static_assert(aici::StackStateKey<Brackets> && !aici::StackStateKey<Restarting>);

// A walk on a line of five fields.
struct Moves {
  using State = int;
  State initial() { return 2; }
  State append(State at, std::string_view move) { return move == "left " ? at - 1 : at + 1; }
  std::vector<std::string> allowed(State at) {
    std::vector<std::string> moves;
    if (at > 0) moves.push_back("left ");
    if (at < 4) moves.push_back("right ");
    return moves;
  }
  std::vector<aici::SpecialToken> special_allowed(State at) {
    if (at % 2 == 0) return {aici::SpecialToken::eos};
    return {};
  }
};

class Again : public aici::Controller {
 public:
  explicit Again(std::string_view argument)
      : words_(argument.substr(0, argument.find('\n'))), source_(argument.substr(argument.find('\n') + 1)) {
    if (has("late")) return;
    std::unique_ptr<aici::AnyConstraint> before, between, after;
    if (has("crowd")) before = make(), between = make();
    constraint_ = make();
    constraint_->prepare();
    between.reset();
    if (has("crowd")) after = make();
  }

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    if (constraint_ == nullptr || (aici::step().backtrack() != 0 && has("anew")))
      constraint_ = make();
    else if (aici::step().backtrack() != 0)
      constraint_->restart();
    constraint_->append(aici::step().tokens());
    std::printf("%d%d %zu\n", constraint_->ended(), constraint_->may_end(), constraint_->cached_bytes());
    return constraint_->next();
  }

 private:
  bool has(std::string_view word) const { return words_.find(word) != std::string::npos; }

  aici::regex::Regex regex() const {
    aici::regex::Limits limits;
    if (has("tight")) limits.kept_bytes = 1;
    return aici::regex::compile_or_fail(source_, limits);
  }

  // Lists of what the expression matches, in brackets.
  aici::cfg::Parser lists() const {
    aici::cfg::Grammar grammar;
    const aici::cfg::Rule list = grammar.declare("list");
    const aici::cfg::Expr item = grammar.choice({grammar.regex(regex()), grammar.call(list)});
    const aici::cfg::Expr more = grammar.star(grammar.sequence({grammar.literal(","), item}));
    grammar.define(list, grammar.sequence({grammar.literal("["), item, more, grammar.literal("]")}));
    grammar.terminals().set_byte_classes(aici::vocabulary().classes());
    aici::cfg::Limits limits;
    if (has("tight")) limits.kept_bytes = 1;
    std::string problem;
    return *aici::cfg::Parser::make(std::move(grammar), list, &problem, limits);
  }

  std::unique_ptr<aici::AnyConstraint> make() const {
    aici::ConstraintOptions options;
    options.stop_when_complete = has("whole");
    if (has("little")) options.cache_bytes = 600;
    const auto of = [&](auto recognizer) {
      return std::make_unique<aici::AnyConstraint>(std::move(recognizer), options);
    };
    const std::string_view what = std::string_view(words_).substr(0, words_.find(' '));
    if (what == "regex") return of(regex());
    if (what == "choices") return of(aici::Choices(aici::lines(source_)));
    if (what == "substring") return of(aici::Substrings(source_));
    if (what == "quotation") return of(aici::Quotation(source_, "!"));
    if (what == "lists") return of(lists());
    if (what == "json") {
      std::vector<aici::json_schema::Problem> problems;
      return of(aici::json_schema::make_or_fail(source_, {}, &problems));
    }
    if (what == "kbnf") return of(aici::kbnf::make_or_fail(source_));
    if (what == "gbnf") return of(aici::gbnf::make_or_fail(source_));
    if (what == "lark") return of(aici::lark::make_or_fail(source_));
    if (what == "yacc") return of(aici::yacc::make_or_fail(source_));
    if (what == "brackets") return of(Brackets());
    if (what == "restarting") return of(Restarting());
    if (what == "stack") return of(aici::StackRecognizer(regex()));
    if (what == "moves") return of(aici::StringStack(Moves()));
    aici::fail("there is no such constraint");
  }

  std::string words_, source_;
  std::unique_ptr<aici::AnyConstraint> constraint_;
};

}  // namespace

AICI_REGISTER(Again);
