//! script.cpp in Rust: a controller that executes its argument, lines of "<callback> <what> <words>". Each callback
//! executes its next lines up to the first with a result, and prints its input.

use std::collections::VecDeque;
use std::fmt::Write;
use std::rc::Rc;

use aici::{
    variables, AiciCtrl, Bias, MidResult, PostResult, PreResult, Row, Sample, SeqId, TokenId, TokenSet,
    Truncation, Wait,
};

struct Script {
    lines: VecDeque<Vec<String>>,
    set: Rc<TokenSet>,
    hoard: Vec<Vec<u8>>,
}

impl Script {
    fn new(argument: &[u8]) -> Result<Self, String> {
        if argument == b"refuse" {
            return Err("refused".into());
        }
        let text = std::str::from_utf8(argument).map_err(|error| error.to_string())?;
        let words = |line: &str| line.split(' ').map(String::from).collect();
        Ok(Self { lines: text.lines().map(words).collect(), set: Rc::default(), hoard: Vec::new() })
    }

    /// Runs lines for `callback` up to one that gives its result.
    fn obey(&mut self, callback: &str) -> Vec<String> {
        while let Some(words) = self.lines.pop_front() {
            assert_eq!(words[0], callback, "this line is not for this callback");
            if !self.act(&words) {
                return words;
            }
        }
        vec![callback.into(), "stop".into()]
    }

    fn act(&mut self, words: &[String]) -> bool {
        let word = |i: usize| words[i].as_str();
        match word(1) {
            "get" => match variables::get_versioned(word(2)) {
                (_, 0) => {
                    assert_eq!(variables::get(word(2)), None);
                    aici::log!("{} missing", word(2));
                }
                (value, version) => {
                    assert_eq!(variables::get(word(2)).as_ref(), Some(&value));
                    aici::log!("{}={}@{version}", word(2), String::from_utf8_lossy(&value));
                }
            },
            "put" => aici::log!("@{}", variables::set(word(2), word(3))),
            "append" => aici::log!("@{}", variables::append(word(2), word(3))),
            "swap" => {
                let version = word(4).parse().expect("a version");
                aici::log!("{}", u32::from(variables::set_if(word(2), word(3), version)));
            }
            "tokenize" => {
                aici::log!(
                    "{}",
                    show("tokenized", &aici::tokenize(word(2)).expect("words of the vocabulary"))
                );
            }
            // by number, since the enum has no name for an unknown capability
            "can" => aici::log!("{}", unsafe { aici::abi::capability(word(2).parse().expect("a number")) }),
            "vocabulary" => aici::log!("{}", vocabulary()),
            "log" => aici::log("logged\n"),
            "end" => aici::stop(),
            "fail" => aici::fail(word(2)),
            "panic" => panic!("{}", word(2)),
            "exhaust" => loop {
                self.hoard.push(Vec::with_capacity(1 << 20));
            },
            _ => return false,
        }
        true
    }
}

fn show(name: &str, items: &[u32]) -> String {
    let mut text = format!("{name}=");
    items.iter().for_each(|item| write!(text, "{item} ").unwrap());
    text
}

fn vocabulary() -> String {
    let words = aici::vocabulary();
    let mut text = show("eos", words.eos());
    for which in aici::SpecialToken::ALL {
        write!(text, "{} ", words.special_token(which).map_or(-1, i64::from)).unwrap();
    }
    for token in 0..words.vocab_size() as TokenId {
        let name = String::from_utf8_lossy(words.token(token));
        let special = if words.is_special(token) { " special" } else { "" };
        let eos = if words.is_eos(token) { " eos" } else { "" };
        write!(text, "[{name}{special}{eos}]").unwrap();
    }
    text
}

impl AiciCtrl for Script {
    fn init_prompt(&mut self, prompt: &[TokenId]) {
        aici::log!("{}", show("prompt", prompt));
    }

    fn pre_process(&mut self) -> PreResult {
        let words = self.obey("pre");
        match words[1].as_str() {
            "stop" => PreResult::Stop,
            "suspend" => PreResult::Suspend,
            "await" => PreResult::SuspendUntil {
                milliseconds: words[2].parse().expect("a number"),
                waits: words[3..]
                    .chunks(2)
                    .map(|pair| Wait { name: pair[0].clone(), version: pair[1].parse().expect("a version") })
                    .collect(),
            },
            "fork" => PreResult::Fork { num_forks: words[2].parse().expect("a number") },
            _ => PreResult::Continue,
        }
    }

    fn post_process(&mut self, tokens: &[TokenId]) -> PostResult {
        aici::log!("{}", show("post", tokens));
        match self.obey("post")[1].as_str() {
            "stop" => PostResult::Stop,
            _ => PostResult::Continue,
        }
    }

    fn mid_process(&mut self, fork_group: &[SeqId]) -> MidResult {
        let step = aici::step();
        let known = |value: Option<f32>| value.map_or("nan".into(), |value| format!("{value:.2}"));
        let logits: String = step.logits().iter().take(4).map(|logit| format!("{logit:.2} ")).collect();
        let looked = if step.looked() { format!("looked {logits}") } else { String::new() };
        let top: String = step.top().iter().map(|top| format!("{}:{:.2} ", top.token, top.logprob)).collect();
        aici::log!(
            "seq={} step={} sampled={} backtrack={} logprob={} mass={} {}{}{top}{looked}",
            aici::self_seq_id(),
            step.number(),
            u32::from(step.sampled()),
            step.backtrack(),
            known(step.logprob()),
            known(step.allowed_mass()),
            show("tokens", &step.tokens()),
            show("group", fork_group),
        );
        let words = self.obey("mid");
        let tokens: Vec<TokenId> = words[2..].iter().map(|word| word.parse().expect("a token")).collect();
        match words[1].as_str() {
            "stop" => MidResult::Stop,
            "look" => MidResult::Look { top_logprobs: tokens.first().copied().unwrap_or(0), own: false },
            "follow" => MidResult::Follow { leader: tokens[0], weight: -0.5, model: String::new() },
            "amateur" => MidResult::Follow { leader: tokens[0], weight: 2.0, model: "amateur".into() },
            "own" => MidResult::Look { top_logprobs: 0, own: true },
            "expects" => MidResult::sample_any().with_drafts(tokens),
            "any" => MidResult::sample_any(),
            "same" => MidResult::sample(Row::Same),
            "force" => MidResult::force(tokens[0]),
            "set" => {
                self.set = Rc::new(tokens.into_iter().collect());
                MidResult::sample(&self.set)
            }
            "given" => {
                let set: TokenSet = tokens.into_iter().collect();
                let truncation =
                    Truncation { top_p: 0.5, top_k: 4, min_p: 0.25, typical_p: 0.75, top_n_sigma: 1.5 };
                MidResult::Sample(Sample {
                    row: set.into(),
                    temperature: Some(0.5),
                    top_logprobs: 3,
                    truncation,
                })
            }
            "sparse" => {
                let bias = |token, bias| Bias { token, bias };
                let biases = vec![bias(tokens[0], 1.5), bias(tokens[1], f32::NEG_INFINITY)];
                MidResult::sample(Row::Biases { biases, others: f32::NEG_INFINITY })
            }
            "dense" => MidResult::sample(Row::Dense(vec![0.25; aici::vocabulary().vocab_size()])),
            "held" => MidResult::splice(0, tokens).holding_end(),
            "spared" => {
                let truncation = Truncation::default();
                let sample = Sample { row: Row::All, temperature: None, top_logprobs: 2, truncation };
                MidResult::Sample(sample).skipping_post().skipping_pre()
            }
            "splice" => MidResult::Splice { backtrack: tokens[0], ff_tokens: tokens[1..].to_vec() },
            what => panic!("no such line: {what}"),
        }
    }
}

aici::export!(Script::new);
