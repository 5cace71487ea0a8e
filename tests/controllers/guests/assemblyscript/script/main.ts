// script.cpp in AssemblyScript: a controller that executes its argument, lines of "<callback> <what> <words>". Each
// callback executes its next lines up to the first with a result, and prints its input.
import * as aici from "aici";

export { aici_abi_v1, aici_arg } from "aici";

let lines: string[] = [];
let next = 0;
const set = new aici.TokenSet();

export function aici_init(arg_len: u32): u32 {
  const argument = String.UTF8.decode(aici.readBytes(aici.ARG, arg_len).buffer);
  if (argument == "refuse") aici.fail("refused");
  lines = argument.split("\n");
  return 0;
}

export function aici_init_prompt(count: u32): u32 {
  aici.log(show("prompt", aici.readWords(aici.PROMPT, count)));
  return 0;
}

export function aici_pre_process(): aici.PreResult {
  const words = obey("pre");
  if (words[1] == "suspend") return aici.suspendUntil([]);
  if (words[1] == "await") {
    const names: string[] = [];
    const versions: u32[] = [];
    for (let i = 3; i < words.length; i += 2) {
      names.push(words[i]);
      versions.push(number(words[i + 1]));
    }
    return aici.suspendUntil(names, number(words[2]), versions);
  }
  aici.pre.verb = aici.CONTINUE;
  aici.pre.num_forks = 1;
  if (words[1] == "fork") {
    aici.pre.verb = aici.FORK;
    aici.pre.num_forks = number(words[2]);
  } else if (words[1] != "go") {
    aici.pre.verb = aici.STOP;
    aici.pre.num_forks = 0;
  }
  return aici.pre;
}

export function aici_post_process(): aici.PostResult {
  aici.log(show("post", aici.tokens()));
  aici.post.verb = obey("post")[1] == "stop" ? aici.STOP : aici.CONTINUE;
  return aici.post;
}

export function aici_mid_process(): aici.MidResult {
  const arg = aici.arg;
  let line = `seq=${arg.seq_id} step=${arg.step} sampled=${arg.flags & aici.ARG_SAMPLED} `;
  line += `backtrack=${arg.backtrack} logprob=${fixed(arg.logprob)} mass=${fixed(arg.allowed_mass)} `;
  line += show("tokens", aici.tokens()) + show("group", aici.readWords(aici.GROUP, arg.num_group));
  const top = aici.readWords(aici.TOP, 2 * arg.num_top); // pairs of token and logprob
  for (let i = 0; i < top.length; i += 2) line += `${top[i]}:${fixed(reinterpret<f32>(top[i + 1]))} `;
  if (aici.looked()) line += "looked ";
  const logits = aici.logits();
  for (let i = 0; i < min(logits.length, 4); i++) line += `${fixed(logits[i])} `;
  aici.log(line);
  const words = obey("mid");
  const what = words[1];
  const tokens = new StaticArray<u32>(words.length - 2);
  for (let i = 2; i < words.length; i++) tokens[i - 2] = number(words[i]);
  if (what == "stop") return aici.ended();
  if (what == "look") return aici.look(tokens.length > 0 ? tokens[0] : 0);
  if (what == "follow") return aici.follow(tokens[0], -0.5);
  if (what == "amateur") return aici.follow(tokens[0], 2.0, "amateur");
  if (what == "own") return aici.look(0, true);
  if (what == "expects") {
    aici.sampleAny();
    return aici.withDrafts(tokens);
  }
  if (what == "any") return aici.sampleAny();
  if (what == "force") return aici.force(tokens[0]);
  if (what == "splice") return aici.splice(tokens[0], tokens.slice<StaticArray<u32>>(1));
  if (what == "held") {
    const result = aici.splice(0, tokens);
    result.flags = aici.MID_HOLD_END;
    return result;
  }
  if (what == "set" || what == "given") {
    set.words.fill(0);
    for (let i = 0; i < tokens.length; i++) set.allow(tokens[i]);
    const result = aici.sample(set);
    if (what == "given") {
      result.temperature = 0.5;
      result.top_logprobs = 3;
      result.top_p = 0.5;
      result.top_k = 4;
      result.min_p = 0.25;
      result.typical_p = 0.75;
      result.top_n_sigma = 1.5;
    }
    return result;
  }
  const result = aici.sampleAny();
  if (what == "spared") {
    result.top_logprobs = 2;
    result.flags = aici.MID_SKIP_PRE | aici.MID_SKIP_POST;
  }
  if (what == "same") result.row_kind = aici.ROW_SAME;
  if (what == "sparse") {
    result.row_kind = aici.ROW_SPARSE;
    result.row = aici.address([tokens[0], reinterpret<u32>(<f32>1.5), tokens[1], reinterpret<u32>(-f32(Infinity))]);
    result.row_len = 2;
    result.row_default = -f32(Infinity);
  }
  if (what == "dense") {
    result.row_kind = aici.ROW_DENSE;
    result.row_len = aici.vocabulary().vocab_size;
    const biases = new StaticArray<u32>(result.row_len);
    biases.fill(reinterpret<u32>(<f32>0.25));
    result.row = aici.address(biases);
  }
  return result;
}

/** Runs lines for `callback` up to one that gives its result. */
function obey(callback: string): string[] {
  while (next < lines.length) {
    const words = lines[next++].split(" ");
    assert(words[0] == callback, callback + " is called, the script says " + words.join(" "));
    if (!act(words)) return words;
  }
  return [callback, "stop"];
}

function act(words: string[]): bool {
  const what = words[1];
  if (what == "get") {
    const value = aici.getVariable(words[2]);
    const name = String.UTF8.encode(words[2]);
    const version = aici.var_get(changetype<usize>(name), name.byteLength, 0);
    aici.log(value === null ? `${words[2]} missing` : `${words[2]}=${value}@${version}`);
  } else if (what == "put") {
    aici.log("@" + aici.writeVariable(words[2], words[3]).toString());
  } else if (what == "append") {
    aici.log("@" + aici.writeVariable(words[2], words[3], aici.APPEND).toString());
  } else if (what == "swap") {
    const version = aici.writeVariable(words[2], words[3], aici.SET, number(words[4]));
    aici.log(version == 0 ? "0" : "1");
  } else if (what == "tokenize") {
    aici.log(show("tokenized", aici.tokensOf(words[2])));
  } else if (what == "can") {
    aici.log(aici.capability(number(words[2])).toString());
  } else if (what == "vocabulary") {
    aici.log(showVocabulary());
  } else if (what == "log") {
    console.log("logged");
  } else if (what == "end") {
    aici.stop();
  } else if (what == "fail") {
    aici.fail(words[2]);
  } else if (what == "throw") {
    throw new Error(words[2]);
  } else if (what == "random") {
    aici.log(Math.random().toString());
  } else if (what == "exhaust") {
    while (true) heap.alloc(1 << 20);
  } else {
    return false;
  }
  return true;
}

function showVocabulary(): string {
  const header = aici.vocabulary();
  let text = "eos=";
  for (let i: u32 = 0; i < header.num_eos; i++) text += `${load<u32>(aici.section(header.eos) + 4 * i)} `;
  text += `${load<u32>(aici.section(header.eos))} `;
  text += `${<i32>header.bos} ${<i32>header.pad} ${<i32>header.unk} `;
  for (let token: u32 = 0; token < header.vocab_size; token++) {
    const flags = load<u8>(aici.section(header.flags) + token);
    const bytes = aici.tokenBytes(token);
    const name = String.UTF8.decodeUnsafe(changetype<usize>(bytes), bytes.length);
    text += "[" + name + (flags & 1 ? " special" : "") + (flags & 2 ? " eos" : "") + "]";
  }
  return text;
}

function show(name: string, items: StaticArray<u32>): string {
  let text = name + "=";
  for (let i = 0; i < items.length; i++) text += `${items[i]} `;
  return text;
}

function number(word: string): u32 {
  return <u32>parseInt(word);
}

/** With two digits behind the point. */
function fixed(value: f32): string {
  if (isNaN(value)) return "nan";
  const hundredths = <i32>Math.round(Math.abs(value) * 100);
  const digits = (hundredths % 100).toString().padStart(2, "0");
  return `${value < 0 ? "-" : ""}${hundredths / 100}.${digits}`;
}
