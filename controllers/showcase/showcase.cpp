// showcase: uses every verb of the controller interface in one run, with a line about each in the log.
//
// A narrator splices text, samples under a mask, backtracks, and forks into three branches. The hero continues at
// another temperature and writes its text into a variable. The listener suspends until the variable exists and splices
// it. The voter writes one of three words, counts a vote by compare-and-set, and uses biases and a forced token. Verbs
// that the engine lacks are skipped, with a line in the log.
#include <cstdarg>
#include <cstdio>
#include <optional>

#include "aici/sdk.hpp"

namespace {

using aici::Capability;
using aici::MidResult;

enum class Role { narrator, hero, listener, voter };
constexpr const char* kNames[] = {"narrator", "hero", "listener", "voter"};
constexpr unsigned kForkScene = 5;   // of the narrator
constexpr unsigned kStoryScene = 1;  // of the listener

class Showcase : public aici::Controller {
 public:
  Showcase() : ballot_(aici::Choices(kColours)) {
    set_.allow_text();
    set_ -= line_ends();
  }

  void init_prompt(std::span<const aici::TokenId> prompt) {
    const aici::Vocabulary& vocab = aici::vocabulary();
    std::printf("init_prompt: %zu tokens; the vocabulary has %u, of which %zu end a text\n", prompt.size(),
                vocab.size(), vocab.eos().size());
  }

  // On the critical path: gets the new tokens; continues or stops.
  aici::PostResult post_process(std::span<const aici::TokenId> tokens) {
    const aici::Step& step = aici::step();
    const std::string text = aici::vocabulary().text(tokens);
    if (step.sampled())
      say("post_process: sampled \"%s\", log-probability %.2f; the row allowed %.2f of all", text.c_str(),
          static_cast<double>(step.logprob()), static_cast<double>(step.allowed_mass()));
    else
      say("post_process: %u tokens removed, \"%s\" appended", step.backtrack(), text.c_str());
    for (const aici::Top& top : step.top())
      say("  likely: \"%s\" %.2f", std::string(aici::vocabulary().token(top.token)).c_str(),
          static_cast<double>(top.logprob));
    if (step.sampled()) written_ += text;
    if (role_ == Role::voter && !ballot_.ended() && !voted_) ballot_.append(tokens);
    return aici::PostResult::go_on();
  }

  // On the critical path: continues, forks, suspends or stops.
  aici::PreResult pre_process() {
    if (role_ == Role::narrator && scene_ == kForkScene) {
      if (can(Capability::fork, "Fork")) return say("pre_process: Fork 3"), aici::PreResult::fork(3);
      take_role(Role::hero);
    }
    if (role_ == Role::listener && scene_ == kStoryScene && !aici::get_variable("story") &&
        can(Capability::suspend, "Suspend"))
      return say("pre_process: Suspend, there is no story yet"), aici::PreResult::suspend();
    return aici::PreResult::go_on();
  }

  // While the model computes: chooses the next token's row, a splice, or the end.
  MidResult mid_process(std::span<const aici::SeqId> fork_group) {
    if (fork_group.size() == 3 && role_ == Role::narrator) {
      for (std::size_t i = 0; i < 3; i++)
        if (fork_group[i] == aici::self_seq_id()) take_role(static_cast<Role>(i + 1));
    }
    for (;;)
      if (std::optional<MidResult> result = play(scene_++)) return std::move(*result);
  }

 private:
  static constexpr const char* kColourNames[] = {" red", " green", " blue"};
  static inline const std::vector<std::string> kColours{std::begin(kColourNames), std::end(kColourNames)};

  [[gnu::format(printf, 2, 3)]] void say(const char* format, ...) const {
    std::printf("%s, sequence %u, ", kNames[static_cast<int>(role_)], aici::self_seq_id());
    va_list arguments;
    va_start(arguments, format);
    std::vprintf(format, arguments);
    va_end(arguments);
    std::printf("\n");
  }

  bool can(Capability capability, const char* verb) const {
    if (aici::capability(capability) != 0) return true;
    say("%s is skipped: the engine lacks it", verb);
    return false;
  }

  void take_role(Role role) {
    role_ = role;
    scene_ = 0;
    written_.clear();
  }

  static aici::TokenSet line_ends() {
    aici::TokenSet found;
    const aici::Vocabulary& vocab = aici::vocabulary();
    for (aici::TokenId token = 0; token < vocab.size(); token++)
      if (vocab.token(token).find_first_of("\r\n") != std::string_view::npos) found.allow(token);
    return found;
  }

  std::optional<MidResult> play(unsigned scene) {
    switch (role_) {
      case Role::narrator:
        return narrate(scene);
      case Role::hero:
        return act(scene);
      case Role::listener:
        return listen(scene);
      case Role::voter:
        return vote(scene);
    }
    return MidResult::stop();
  }

  std::optional<MidResult> narrate(unsigned scene) {
    if (scene == 0) return splice(0, "Once upon a time");
    if (scene == 1) {
      say("mid_process: SampleWithBias, %u tokens allowed", set_.count());
      return MidResult::sample(set_).with_top_logprobs(3);
    }
    if (scene == 2) return say("mid_process: the same row again"), MidResult::sample_same();
    if (scene == 3) return splice(2, ", far away,");
    return say("mid_process: any token"), MidResult::sample_any();
  }

  std::optional<MidResult> act(unsigned scene) {
    if (scene < 3)
      return say("mid_process: sampled at temperature 0.5"), MidResult::sample(set_).with_temperature(0.5f);
    const std::uint32_t version = aici::set_variable("story", written_);
    say("variable story = \"%s\", version %u", written_.c_str(), version);
    return say("mid_process: Stop"), MidResult::stop();
  }

  std::optional<MidResult> listen(unsigned scene) {
    if (scene == 0) return say("mid_process: any token"), MidResult::sample_any();
    if (scene == kStoryScene) {
      const auto story = aici::get_variable("story");
      return splice(0, " They say:" + (story ? story->value : std::string(" nothing")));
    }
    return say("mid_process: Stop"), MidResult::stop();
  }

  std::optional<MidResult> vote(unsigned scene) {
    if (scene == 0) {
      MidResult next = ballot_.next();
      if (!next.is_stop()) {
        scene_ = 0;
        return say("mid_process: one of three words"), std::move(next);
      }
      voted_ = true;
      count_vote();
      return std::nullopt;
    }
    if (scene == 1) {
      if (!can(Capability::dense, "a row of biases")) return std::nullopt;
      std::vector<aici::Bias> biases;
      for (aici::TokenId token : aici::vocabulary().eos()) biases.push_back({token, aici::kForbidden});
      say("mid_process: %zu biases", biases.size());
      return MidResult::biases(std::move(biases));
    }
    const auto eos = aici::vocabulary().special_token(aici::SpecialToken::eos);
    if (scene == 2 && eos)
      return say("mid_process: token %u is forced, the end", *eos), MidResult::force(*eos);
    say("mid_process: aici_stop");
    aici::stop();
  }

  void count_vote() const {
    for (;;) {
      const auto votes = aici::get_variable("votes");
      const std::string more = (votes ? votes->value : std::string()) + written_;
      if (aici::set_variable_if("votes", more, votes ? votes->version : 0))
        return say("votes:%s", more.c_str());
    }
  }

  std::optional<MidResult> splice(std::uint32_t backtrack, const std::string& text) {
    if (backtrack != 0 && !can(Capability::backtrack, "Backtrack")) backtrack = 0;
    if (!can(Capability::ff_tokens, "Splice")) return std::nullopt;
    const std::vector<aici::TokenId> tokens = aici::tokenize(text);
    say("mid_process: Splice, %u tokens removed, %zu appended", backtrack, tokens.size());
    return MidResult::splice(backtrack, tokens);
  }

  Role role_ = Role::narrator;
  unsigned scene_ = 0;
  std::string written_;  ///< text that was sampled in this role
  aici::TokenSet set_;   ///< all text without line ends
  aici::Constraint<aici::Choices> ballot_;
  bool voted_ = false;
};

}  // namespace

AICI_REGISTER(Showcase, init_prompt, pre_process, post_process);
