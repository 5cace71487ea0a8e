#include "aici/lr/yacc.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/detail/lr/parser.hpp"
#include "aici/host.hpp"
#include "aici/regex/regex.hpp"
#include "aici/vocabulary.hpp"
#include "syntax.hpp"

namespace aici::yacc {

namespace {

using lexer::Terminal;
using lexer::kNoTerminal;
using lr::Grammar;
using lr::Precedence;
using lr::Production;
using lr::Symbol;
using lr::is_nonterminal;
using lr::nonterminal_index;
using Kind = Word::Kind;

/// A problem with a rule, by its name.
using Complaint = std::function<void(const std::string& name, const std::string& problem)>;

/// Returns the nonterminals that derive a text in which `good` holds for every terminal.
template <class Good>
std::vector<bool> derivable(const Grammar& grammar, Good good) {
  std::vector<bool> found(grammar.nonterminals.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (const Production& p : grammar.productions)
      if (!found[nonterminal_index(p.left)] && std::ranges::all_of(p.right, [&](Symbol symbol) {
            return is_nonterminal(symbol) ? found[nonterminal_index(symbol)] : good(symbol);
          }))
        changed = found[nonterminal_index(p.left)] = true;
  }
  return found;
}

/// The symbols that can be reached from the start.
struct Reachable {
  std::vector<bool> nonterminals, terminals;
};

Reachable reachable(const Grammar& grammar) {
  Reachable found{std::vector<bool>(grammar.nonterminals.size()), std::vector<bool>(grammar.terminals.size())};
  found.nonterminals[0] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Production& p : grammar.productions) {
      if (!found.nonterminals[nonterminal_index(p.left)]) continue;
      for (Symbol symbol : p.right) {
        auto known = is_nonterminal(symbol) ? found.nonterminals.begin() + nonterminal_index(symbol)
                                            : found.terminals.begin() + symbol;
        if (!*known) changed = *known = true;
      }
    }
  }
  return found;
}

/// Returns, for each nonterminal, the nonterminals by which it can be replaced, with nothing else.
std::vector<std::vector<bool>> replacements(const Grammar& grammar) {
  const std::vector<bool> empty = derivable(grammar, [](Symbol) { return false; });
  const auto vanishes = [&](Symbol s) { return is_nonterminal(s) && empty[nonterminal_index(s)]; };
  const std::size_t count = grammar.nonterminals.size();
  std::vector<std::vector<bool>> by(count, std::vector<bool>(count));
  for (const Production& p : grammar.productions)
    for (std::size_t i = 0; i < p.right.size(); i++) {
      bool alone = is_nonterminal(p.right[i]);
      for (std::size_t j = 0; alone && j < p.right.size(); j++) alone = i == j || vanishes(p.right[j]);
      if (alone) by[nonterminal_index(p.left)][nonterminal_index(p.right[i])] = true;
    }
  for (std::size_t middle = 0; middle < count; middle++)
    for (std::size_t from = 0; from < count; from++)
      if (by[from][middle])
        for (std::size_t to = 0; to < count; to++)
          if (by[middle][to]) by[from][to] = true;
  return by;
}

/// Calls `fail`, which does not return, for a rule that has no text or can be replaced by itself. Calls `warn` for
/// rules and named terminals that no text of the grammar uses. (`ignored` may stand between any two terminals.)
void check_grammar(const Grammar& grammar, lexer::Terminal ignored, const Complaint& fail, const Complaint& warn) {
  const std::vector<bool> productive = derivable(grammar, [](Symbol) { return true; });
  const std::vector<std::vector<bool>> replaced = replacements(grammar);
  for (std::size_t i = 1; i < grammar.nonterminals.size(); i++) {
    const std::string& name = grammar.nonterminals[i];
    if (!productive[i]) fail(name, name + " matches no text: each of its alternatives contains itself");
    if (replaced[i][i]) fail(name, name + " derives itself, so a text has infinitely many derivations");
  }
  const Reachable used = reachable(grammar);
  for (std::size_t i = 1; i < grammar.nonterminals.size(); i++)
    if (!used.nonterminals[i]) warn(grammar.nonterminals[i], "the rule " + grammar.nonterminals[i] + " is not used");
  for (std::size_t i = 1; i < grammar.terminals.size(); i++)
    if (!used.terminals[i] && i != ignored)
      warn(grammar.terminals[i], "the terminal " + grammar.terminals[i] + " is not in any rule that is used");
}

/// A grammar with its names resolved.
struct Resolved {
  lr::Grammar grammar;
  lexer::Lexer lexer;
  lexer::Terminal skip = lexer::kNoTerminal;
  /// The number of conflicts in %expect; -1 without %expect.
  int expected_conflicts = -1;
  /// For the log.
  std::vector<std::string> warnings;
};

constexpr const char* kSkip = "SKIP";

bool is_quoted(const Word& word) { return word.kind == Kind::kKeyword || word.kind == Kind::kPattern; }

/// Returns the key of a quoted terminal: the same terminal has the same key.
std::string key(const Word& word) { return (word.kind == Kind::kPattern ? "/" : "\"") + word.text; }

/// Returns a word as it is written in messages.
std::string shown(const Word& word) {
  return word.kind == Kind::kPattern ? "\"/" + word.text + "/\"" : "\"" + word.text + "\"";
}

/// Resolves the names of a grammar. Fails the controller, with line and column, if it is invalid.
class Translator {
 public:
  Translator(const front::Source& source, const Rules& rules) : source_(source), rules_(rules) {
    count_uses();
    number_terminals();
    number_nonterminals();
    set_precedences();
    add_productions();
    out_.lexer = make_lexer();
    out_.expected_conflicts = rules.expected_conflicts;
    check_grammar(
        out_.grammar, out_.skip,
        [&](const std::string& name, const std::string& problem) { source_.fail(rules_.find(name)->at, problem); },
        [&](const std::string& name, const std::string& problem) { warn(name, problem); });
  }

  Resolved take() { return std::move(out_); }

 private:
  /// Adds a warning, except for quoted terminals, whose rule has its own warning, and for names of %token.
  void warn(const std::string& name, const std::string& problem) {
    const Rule* rule = rules_.find(name);
    if (rule == nullptr || std::ranges::any_of(rules_.tokens, [&](const Word& token) { return token.text == name; }))
      return;
    out_.warnings.push_back(source_.place(rule->at) + ": " + problem);
  }

  /// Returns whether a rule only names keywords and patterns that occur nowhere else. Such a rule is one terminal, and
  /// the parser does not distinguish its alternatives: it needs fewer states, and the name can have a precedence.
  bool is_lexeme(const Rule& rule) const {
    if (rules_.start ? rule.name == rules_.start->text : &rule == first_rule()) return false;
    for (const Alternative& alternative : rule.alternatives) {
      if (alternative.precedence || alternative.symbols.size() != 1 || !is_quoted(alternative.symbols[0])) return false;
      if (rule.alternatives.size() > 1 && uses_.at(key(alternative.symbols[0])) > 1) return false;
    }
    return true;
  }

  const Rule* first_rule() const {
    for (const Rule& rule : rules_.rules)
      if (rule.name != kSkip) return &rule;
    return nullptr;
  }

  void count_uses() {
    for (const Rule& rule : rules_.rules)
      for (const Alternative& alternative : rule.alternatives)
        for (const Word& word : alternative.symbols)
          if (is_quoted(word)) uses_[key(word)]++;
  }

  Terminal add_terminal(std::string name) {
    Grammar& g = out_.grammar;
    if (g.terminals.size() >= lr::kFirstNonterminal) aici::fail("the grammar has too many terminals");
    g.terminals.push_back(std::move(name));
    g.precedences.emplace_back();
    return static_cast<Terminal>(g.terminals.size() - 1);
  }

  void add_quoted(const Word& word, Terminal terminal) {
    if (words_.emplace(key(word), terminal).second) quoted_.emplace_back(word, terminal);
  }

  void number_terminals() {
    add_terminal("the end");
    for (const Rule& rule : rules_.rules) {
      const bool skip = rule.name == kSkip;
      if (!skip && !is_lexeme(rule)) continue;
      Terminal terminal = kNoTerminal;
      for (const Alternative& alternative : rule.alternatives) {
        if (alternative.symbols.size() != 1 || !is_quoted(alternative.symbols[0]))
          source_.fail(rule.at, "SKIP has one keyword or pattern in each alternative");
        const Word& word = alternative.symbols[0];
        if (skip && uses_[key(word)] > 1) source_.fail(word.at, shown(word) + " is both skipped and used in a rule");
        if (const auto known = words_.find(key(word)); known != words_.end()) terminal = known->second;
      }
      if (terminal == kNoTerminal) terminal = add_terminal(rule.name);
      for (const Alternative& alternative : rule.alternatives) add_quoted(alternative.symbols[0], terminal);
      symbols_.emplace(rule.name, terminal);
      if (skip) out_.skip = terminal;
    }
    for (const Rule& rule : rules_.rules)
      for (const Alternative& alternative : rule.alternatives)
        for (const Word& word : alternative.symbols)
          if (is_quoted(word) && !words_.contains(key(word))) add_quoted(word, add_terminal(shown(word)));
  }

  void number_nonterminals() {
    Grammar& g = out_.grammar;
    g.nonterminals.push_back("the text");
    for (const Rule& rule : rules_.rules) {
      if (symbols_.contains(rule.name)) continue;
      if (g.nonterminals.size() >= 0x7fff) aici::fail("the grammar has too many rules");
      symbols_.emplace(rule.name, static_cast<Symbol>(lr::kFirstNonterminal + g.nonterminals.size()));
      g.nonterminals.push_back(rule.name);
    }
    for (const Word& token : rules_.tokens)
      if (token.kind == Kind::kName && !symbols_.contains(token.text))
        source_.fail(token.at, "the terminal " + token.text + " has no rule that defines its text, such as " +
                                   token.text + ": \"/[a-z]+/\" ;");
  }

  Symbol symbol(const Word& word) const {
    if (is_quoted(word)) return words_.at(key(word));
    const auto found = symbols_.find(word.text);
    if (found == symbols_.end()) source_.fail(word.at, "there is no rule for " + word.text);
    if (found->second == out_.skip) source_.fail(word.at, "SKIP is allowed everywhere and cannot be used in a rule");
    return found->second;
  }

  /// A name that is used only for a precedence, as in `%prec UMINUS`, has no rule.
  Precedence* precedence(const Word& word) {
    if (is_quoted(word)) {
      if (const auto found = words_.find(key(word)); found != words_.end())
        return &out_.grammar.precedences[found->second];
    } else if (const auto found = symbols_.find(word.text); found != symbols_.end()) {
      if (lr::is_nonterminal(found->second))
        source_.fail(word.at, word.text + " is no terminal: only keywords and patterns, and names for nothing else, "
                                          "have a precedence");
      return &out_.grammar.precedences[found->second];
    }
    return &other_precedences_[key(word)];
  }

  void set_precedences() {
    std::uint16_t level = 0;
    for (const PrecedenceLine& line : rules_.precedences) {
      level++;
      for (const Word& word : line.symbols) {
        Precedence* known = precedence(word);
        if (known->level) source_.fail(word.at, "this already has a precedence");
        *known = {level, line.associativity};
      }
    }
  }

  void add_productions() {
    Grammar& g = out_.grammar;
    const Rule* start = rules_.start ? rules_.find(rules_.start->text) : first_rule();
    if (start == nullptr) {
      if (rules_.start) source_.fail(rules_.start->at, "there is no rule for " + rules_.start->text);
      aici::fail("the grammar has no rules other than SKIP");
    }
    if (start->name == kSkip) source_.fail(rules_.start->at, "SKIP cannot be the start");
    g.productions.push_back({lr::kFirstNonterminal, {symbols_.at(start->name)}, {}});
    for (const Rule& rule : rules_.rules) {
      const Symbol left = symbols_.at(rule.name);
      if (!lr::is_nonterminal(left)) continue;
      for (const Alternative& alternative : rule.alternatives) {
        Production made{left, {}, {}};
        for (const Word& word : alternative.symbols) {
          made.right.push_back(symbol(word));
          if (!lr::is_nonterminal(made.right.back())) made.precedence = g.precedences[made.right.back()];
        }
        if (alternative.precedence) {
          made.precedence = *precedence(*alternative.precedence);
          if (made.precedence.level == 0) source_.fail(alternative.precedence->at, "this has no precedence");
        }
        g.productions.push_back(std::move(made));
      }
    }
  }

  lexer::Lexer make_lexer() {
    lexer::Lexer lexer(out_.grammar.terminals.size());
    for (const auto& [word, terminal] : quoted_) {
      if (word.kind == Kind::kKeyword) {
        lexer.add_keyword(word.text, terminal);
        continue;
      }
      regex::Error error;
      auto pattern = regex::Regex::lexeme(word.text, /*lazy=*/false, &error);
      if (!pattern) source_.fail(word.at, "in " + shown(word) + ", " + error.text());
      pattern->set_byte_classes(vocabulary().classes());
      lexer.add_pattern(std::move(*pattern), terminal);
    }
    lexer.finish(out_.skip);
    return lexer;
  }

  const front::Source& source_;
  const Rules& rules_;
  Resolved out_{.lexer = lexer::Lexer(1)};
  std::map<std::string, int> uses_;
  std::map<std::string, Terminal> words_;   ///< by `key`
  std::map<std::string, Symbol> symbols_;   ///< by name
  std::vector<std::pair<Word, Terminal>> quoted_;  ///< in the order of preference
  std::map<std::string, Precedence> other_precedences_;
};

}  // namespace

lr::Parser make_parser(std::string_view text, std::vector<std::string>* warnings) {
  const front::Source source(text);
  const Rules rules = read_rules(text, source);
  Resolved yacc = Translator(source, rules).take();
  lr::Tables tables;
  std::vector<lr::Conflict> conflicts;
  if (const char* problem = lr::build_tables(yacc.grammar, &tables, &conflicts)) aici::fail(problem);
  const int count = static_cast<int>(conflicts.size());
  std::string all;
  for (const lr::Conflict& conflict : conflicts) all += "\n  " + conflict.text;
  if (yacc.expected_conflicts >= 0 && yacc.expected_conflicts != count)
    aici::fail("the grammar has " + std::to_string(count) + (count == 1 ? " conflict" : " conflicts") + ", not the " +
               std::to_string(yacc.expected_conflicts) + " that %expect says:" + all);
  *warnings = std::move(yacc.warnings);
  if (count && yacc.expected_conflicts < 0)
    for (const lr::Conflict& conflict : conflicts) warnings->push_back(conflict.text);
  return lr::Parser(std::move(tables), std::move(yacc.lexer), yacc.skip);
}

lr::Parser make_or_fail(std::string_view grammar) {
  std::vector<std::string> warnings;
  lr::Parser parser = make_parser(grammar, &warnings);
  for (const std::string& warning : warnings) log("warning: " + warning + "\n");
  return parser;
}

}  // namespace aici::yacc
