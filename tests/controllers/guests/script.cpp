// A controller that executes its argument: lines of "<callback> <what> <words>". Each callback executes its next lines
// up to the first with a result, and prints its input.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "aici/json.hpp"
#include "aici/sdk.hpp"

namespace {

using Words = std::vector<std::string>;

Words split(const std::string& text, char separator) {
  Words words;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    if (end > start) words.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

std::uint32_t number(const std::string& word) { return static_cast<std::uint32_t>(std::atoi(word.c_str())); }

template <class Items>
void show(const char* name, const Items& items) {
  std::printf("%s=", name);
  for (const auto& item : items) std::printf("%u ", static_cast<unsigned>(item));
}

class Script : public aici::Controller {
 public:
  explicit Script(std::string_view argument) : lines_(split(std::string(argument), '\n')) {
    if (argument == "refuse") aici::fail("refused");
  }

  void init_prompt(std::span<const aici::TokenId> prompt) {
    show("prompt", prompt);
    std::printf("\n");
  }

  aici::PreResult pre_process() {
    const Words words = obey("pre");
    if (words[1] == "stop") return aici::PreResult::stop();
    if (words[1] == "suspend") return aici::PreResult::suspend();
    if (words[1] == "await") {
      awaited_ = words;
      waits_.clear();
      for (std::size_t i = 3; i < words.size(); i += 2) waits_.push_back({awaited_[i], number(words[i + 1])});
      return aici::PreResult::suspend_until(waits_, number(words[2]));
    }
    if (words[1] == "fork") return aici::PreResult::fork(number(words[2]));
    return aici::PreResult::go_on();
  }

  aici::PostResult post_process(std::span<const aici::TokenId> tokens) {
    show("post", tokens);
    std::printf("\n");
    return obey("post")[1] == "stop" ? aici::PostResult::stop() : aici::PostResult::go_on();
  }

  aici::MidResult mid_process(std::span<const aici::SeqId> fork_group) {
    const aici::Step& step = aici::step();
    std::printf("seq=%u step=%u sampled=%d backtrack=%u logprob=%.2f mass=%.2f ", aici::self_seq_id(),
                step.number(), step.sampled(), step.backtrack(), static_cast<double>(step.logprob()),
                static_cast<double>(step.allowed_mass()));
    show("tokens", step.tokens());
    show("group", fork_group);
    for (const aici::Top& top : step.top())
      std::printf("%u:%.2f ", top.token, static_cast<double>(top.logprob));
    if (step.looked()) std::printf("looked ");
    for (const float logit : step.logits().first(std::min<std::size_t>(step.logits().size(), 4)))
      std::printf("%.2f ", static_cast<double>(logit));
    std::printf("\n");
    const Words words = obey("mid");
    const std::string& what = words[1];
    std::vector<aici::TokenId> tokens;
    for (std::size_t i = 2; i < words.size(); i++) tokens.push_back(number(words[i]));
    if (what == "stop") return aici::MidResult::stop();
    if (what == "look") return aici::MidResult::look(tokens.empty() ? 0 : tokens[0]);
    if (what == "follow") return aici::MidResult::follow(tokens[0], -0.5f);
    if (what == "amateur") return aici::MidResult::follow(tokens[0], 2, "amateur");
    if (what == "own") return aici::MidResult::look(0, true);
    if (what == "expects") return aici::MidResult::sample_any().with_drafts(tokens);
    if (what == "any") return aici::MidResult::sample_any();
    if (what == "same") return aici::MidResult::sample_same();
    if (what == "force") return aici::MidResult::force(tokens[0]);
    if (what == "set") {
      set_.clear();
      set_.allow(tokens);
      return aici::MidResult::sample(set_);
    }
    if (what == "numbered") {  // N TOKENS...
      set_.clear();
      set_.allow(std::span(tokens).subspan(1));
      return aici::MidResult::bits(set_.data(), set_.size_in_words(), tokens[0]);
    }
    if (what == "given") {
      aici::TokenSet set;
      set.allow(tokens);
      return aici::MidResult::sample(std::move(set)).with_temperature(0.5f).with_top_logprobs(3).with_truncation(
          {.top_p = 0.5f, .top_k = 4, .min_p = 0.25f, .typical_p = 0.75f, .top_n_sigma = 1.5f});
    }
    if (what == "sparse")
      return aici::MidResult::biases({{tokens[0], 1.5f}, {tokens[1], aici::kForbidden}}, aici::kForbidden);
    if (what == "dense") return aici::MidResult::dense(std::vector<float>(aici::vocabulary().size(), 0.25f));
    if (what == "referred") {
      biases_.assign(aici::vocabulary().size(), 0.75f);
      aici::MidResult result = aici::MidResult::dense(biases_);
      biases_[1] = -1;  // nothing was copied
      return result;
    }
    if (what == "held") return aici::MidResult::splice(0, {tokens[0]}).holding_end();
    if (what == "spared") return aici::MidResult::sample_any().skipping_post().with_top_logprobs(2).skipping_pre();
    if (what == "named") {
      aici::MidResult result = aici::MidResult::sample_any();
      result.skipping_pre().with_top_logprobs(2);
      result.with_temperature(0.5f);
      return result.holding_end().skipping_post();
    }
    if (what == "splice")
      return aici::MidResult::splice(tokens[0], std::vector<aici::TokenId>(tokens.begin() + 1, tokens.end()));
    aici::fail("no such line: " + what);
  }

 private:
  // Runs lines for `callback` up to one that gives its result.
  Words obey(const char* callback) {
    while (next_ < lines_.size()) {
      Words words = split(lines_[next_], ' ');
      if (words[0] != callback)
        aici::fail(std::string(callback) + " is called, the script says " + lines_[next_]);
      next_++;
      if (!act(words)) return words;
    }
    return {callback, "stop"};
  }

  bool act(Words& words) {
    const std::string& what = words[1];
    if (what == "get") {
      const auto variable = aici::get_variable(words[2]);
      variable ? std::printf("%s=%s@%u\n", words[2].c_str(), variable->value.c_str(), variable->version)
               : std::printf("%s missing\n", words[2].c_str());
    } else if (what == "put") {
      std::printf("@%u\n", aici::set_variable(words[2], words[3]));
    } else if (what == "append") {
      std::printf("@%u\n", aici::append_variable(words[2], words[3]));
    } else if (what == "swap") {
      std::printf("%d\n", aici::set_variable_if(words[2], words[3], number(words[4])));
    } else if (what == "tokenize") {
      show("tokenized", aici::tokenize(words[2]));
      std::printf("\n");
    } else if (what == "text") {
      std::vector<aici::TokenId> tokens;
      for (std::size_t i = 2; i < words.size(); i++) tokens.push_back(number(words[i]));
      std::printf("text=%s\n", aici::vocabulary().text(tokens).c_str());
    } else if (what == "lines") {
      std::replace(words[2].begin(), words[2].end(), '/', '\n');
      for (const std::string& line : aici::lines(words[2])) std::printf("[%s]", line.c_str());
      std::printf("\n");
    } else if (what == "tool") {
      const auto schema = aici::tool_arguments(aici::get_variable(words[2])->value, words[3]);
      std::printf("%s\n", schema ? schema->c_str() : "nothing");
    } else if (what == "can") {
      std::printf("%u\n", aici::capability(static_cast<aici::Capability>(number(words[2]))));
    } else if (what == "vocabulary") {
      const aici::Vocabulary& v = aici::vocabulary();
      show("eos", v.eos());
      for (aici::SpecialToken which : aici::kSpecialTokens)
        std::printf("%d ", static_cast<int>(v.special_token(which).value_or(-1)));
      for (aici::TokenId t = 0; t < v.size(); t++)
        std::printf("[%.*s%s%s]", static_cast<int>(v.token(t).size()), v.token(t).data(),
                    v.is_special(t) ? " special" : "", v.is_eos(t) ? " eos" : "");
      std::printf("\n");
    } else if (what == "move") {
      aici::TokenSet set;
      std::vector<float> floats(aici::vocabulary().size());
      std::vector<aici::Bias> biases(3);
      std::vector<aici::TokenId> tokens(2);
      const void* const before[] = {set.data(), floats.data(), biases.data(), tokens.data()};
      aici::MidResult results[] = {
          aici::MidResult::sample(std::move(set)), aici::MidResult::dense(std::move(floats)),
          aici::MidResult::biases(std::move(biases)), aici::MidResult::splice(0, std::move(tokens))};
      for (int i = 0; i < 4; i++) {
        const aici::MidResult moved = std::move(results[i]);
        const auto now = i == 3 ? moved.raw().ff_tokens : moved.raw().row;
        std::printf("%d ", now == reinterpret_cast<std::uintptr_t>(before[i]));
      }
      std::printf("\n");
    } else if (what == "log") {
      aici::log("logged\n");
    } else if (what == "end") {
      aici::stop();
    } else if (what == "fail") {
      aici::fail(words[2]);
    } else if (what == "exhaust") {
      for (std::size_t size = 1 << 20;; size *= 2) set_of_bytes_.reserve(size);
    } else {
      return false;
    }
    return true;
  }

  Words lines_;
  std::size_t next_ = 0;
  Words awaited_;
  std::vector<aici::Wait> waits_;
  aici::TokenSet set_;
  std::vector<float> biases_;
  std::vector<char> set_of_bytes_;
};

}  // namespace

AICI_REGISTER(Script, init_prompt, pre_process, post_process);
