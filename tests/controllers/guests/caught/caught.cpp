// A controller that continues after failures, and prints them. The argument is a line of words, then the source of the
// constraint. The first word is the kind of constraint. Other words: `anew` (a new constraint replaces a failed one,
// instead of restarting it), and the failures to provoke in the constructor.
#include <cstdio>
#include <optional>

#include "aici/cfg/parser.hpp"
#include "aici/json_schema/make.hpp"
#include "aici/kbnf/kbnf.hpp"
#include "aici/lr/yacc.hpp"
#include "aici/regex/regex.hpp"
#include "aici/sdk.hpp"

extern "C" {
void leave(void);
bool is_left(void (*body)(void*), void* data);
}

namespace {

[[clang::no_destroy]] std::string last;

void note(std::string_view message) {
  last = message;
  leave();
}

void note_and_fail(std::string_view) { aici::fail("the handler failed"); }
void note_and_return(std::string_view message) { aici::log(message); }

// Runs `body`; prints its failure, if it fails.
template <class Body>
bool fails(Body body) {
  const aici::FailHandler outer = aici::catch_failures(note);
  const bool failed = is_left([](void* data) { (*static_cast<Body*>(data))(); }, &body);
  aici::catch_failures(outer);
  if (failed) std::printf("failed: %s\n", last.c_str());
  return failed;
}

// Overwrites the stack of frames that were left.
[[gnu::noinline]] void overwrite_stack() {
  volatile char room[16384];
  for (char volatile& byte : room) byte = static_cast<char>(0xAA);
}

// Fails near the end of its constructor.
class Table : public aici::Warmable {
 public:
  explicit Table(bool good) : rows_(4) {
    if (!good) aici::fail("the table cannot be made");
  }
  bool warm() override {
    if (next_ == rows_.size()) return false;
    rows_.at(next_++) = 1;
    return true;
  }

 private:
  std::vector<int> rows_;
  std::size_t next_ = 0;
};

class Caught : public aici::Controller {
 public:
  explicit Caught(std::string_view argument)
      : words_(argument.substr(0, argument.find('\n'))), source_(argument.substr(argument.find('\n') + 1)) {
    if (has("refused")) {
      fails([] { aici::regex::compile_or_fail("a[b"); });
      fails([] { aici::kbnf::make_or_fail("start ::= other;"); });
      fails([] { aici::yacc::make_or_fail("%% a: b ;"); });
      fails([] {
        std::vector<aici::json_schema::Problem> problems;
        aici::json_schema::make_or_fail(R"({"type": "nothing"})", {}, &problems);
      });
      fails([] { aici::json_schema::make_or_fail("{", {}, nullptr); });
    }
    if (has("memory")) fails([] { static_cast<char*>(::operator new(1u << 30))[0] = 1; });
    if (has("library")) fails([] { std::vector<int>().reserve(static_cast<std::size_t>(-1)); });
    if (has("nested")) {
      fails([] {
        Table left(true);
        fails([] { aici::fail("inner"); });
        Table also_left(true);
        aici::fail("outer");
      });
    }
    if (has("returns")) {
      aici::catch_failures(note_and_return);
      aici::fail("it ends");
    }
    if (has("fails")) {
      aici::catch_failures(note_and_fail);
      aici::fail("first");
    }
    if (has("handlers")) {
      const aici::FailHandler none = aici::catch_failures(note), one = aici::catch_failures(nullptr);
      std::printf("%d%d%d\n", none == nullptr, one == note, aici::catch_failures(nullptr) == nullptr);
    }
    Table before(true);
    if (has("construction")) {
      fails([] { Table table(false); });
      fails([] {
        const std::string texts[] = {"a", "zz"};
        aici::Constraint<aici::Choices> constraint{aici::Choices(texts)};
      });
      fails([] {
        Table table(true), moved(std::move(table));
        aici::fail("behind two tables");
      });
    }
    constraint_ = make();
    kept_.emplace(std::move(before));
    if (has("construction")) fails([] { new Table(false); });
    overwrite_stack();
  }

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    std::optional<aici::MidResult> result;
    if (fails([&] {
          constraint_->append(aici::step().tokens());
          result = constraint_->next();
        })) {
      has("anew") ? (constraint_ = make(), void()) : constraint_->restart();
      // the first tokens may arrive before a mask is requested
      constraint_->append(first_);
      result = constraint_->next();
    } else if (first_.empty()) {
      first_.assign(aici::step().tokens().begin(), aici::step().tokens().end());
    }
    return std::move(*result);
  }

 private:
  bool has(std::string_view word) const { return words_.find(word) != std::string::npos; }

  std::unique_ptr<aici::AnyConstraint> make() const {
    const auto of = [](auto recognizer) { return std::make_unique<aici::AnyConstraint>(std::move(recognizer)); };
    if (words_.starts_with("regex ")) {
      aici::regex::Limits limits;
      if (has("small")) limits.automaton_bytes = 30'000;
      return of(aici::regex::compile_or_fail(source_, limits));
    }
    if (words_.starts_with("choices")) return of(aici::Choices(aici::lines(source_)));
    if (words_.starts_with("stack")) return of(aici::StackRecognizer(aici::regex::compile_or_fail(source_)));
    if (words_.starts_with("sums")) return of(sums());
    aici::fail("there is no such constraint");
  }

  // s: s s | "a": a text of n letters has more readings the longer it is.
  static aici::cfg::Parser sums() {
    aici::cfg::Grammar grammar;
    const aici::cfg::Rule sum = grammar.declare("sum");
    const aici::cfg::Expr both = grammar.sequence({grammar.call(sum), grammar.call(sum)});
    grammar.define(sum, grammar.choice({grammar.literal("a"), both, grammar.sequence({both, grammar.call(sum)})}));
    grammar.terminals().set_byte_classes(aici::vocabulary().classes());
    std::string problem;
    return *aici::cfg::Parser::make(std::move(grammar), sum, &problem, {.threads = 60});
  }

  std::string words_, source_;
  std::vector<aici::TokenId> first_;
  std::optional<Table> kept_;
  std::unique_ptr<aici::AnyConstraint> constraint_;
};

}  // namespace

AICI_REGISTER(Caught);
