// The library for controllers in AssemblyScript: aici.h, and substitutes for C's macros, casts and printf.
//
// A controller begins with
//
//     import { ... } from "aici";
//     export { aici_abi_v1, aici_arg } from "aici";
//
// and exports functions with the full names: `export function aici_mid_process(): MidResult` and so on. The
// compiler's options are in the asconfig.json that `aici new` writes.
import {
  ANY_VERSION, ARG_LOOKED, FOLLOW, INLINE_GROUP, INLINE_TOKENS, LOGITS, LOOK, MID_DRAFTS, MID_OWN, MidResult, NO_TOKENS, PostResult, PreResult, ROW_ALL, ROW_BITMASK,
  ROW_TOKEN, SAMPLE, SET, SPLICE, STOP, SUSPEND, StepArg, TOKENIZED, TOKENS, VALUE, VocabularyHeader, host_call, host_fail,
  host_vocabulary, read, tokenize, var_get, var_write,
} from "aici_abi";

export * from "aici_abi";

/** The marker of the ABI version. */
export function aici_abi_v1(): void {}

const STEP_ARG_SIZE: u32 = offsetof<StepArg>() + 4 * (INLINE_TOKENS + INLINE_GROUP);

/** The argument of the current step, which the host fills in. */
export const arg: StepArg = changetype<StepArg>(memory.data(168));
arg.size = STEP_ARG_SIZE;

export function aici_arg(): StepArg {
  return arg;
}

/** Results to fill in and return. */
export const pre: PreResult = changetype<PreResult>(memory.data(24));
pre.size = offsetof<PreResult>();
export const post: PostResult = changetype<PostResult>(memory.data(8));
post.size = offsetof<PostResult>();
export const mid: MidResult = changetype<MidResult>(memory.data(68));
mid.size = offsetof<MidResult>();

/** Keeps the data alive to which `pre` points, until the next step. */
let keptNames: ArrayBuffer[] = [];
let keptWaits: StaticArray<u32> = [];

/**
 * Suspends the sequence until one of these variables has a later version than the one at its place in `versions` (0, or
 * none: until it exists), or for so many milliseconds (0: without a limit); aici_pre_process is not called before. With
 * neither, it skips one step.
 */
export function suspendUntil(names: string[], milliseconds: u32 = 0, versions: u32[] = []): PreResult {
  keptNames = [];
  keptWaits = new StaticArray<u32>(3 * names.length);
  for (let i = 0; i < names.length; i++) {
    const name = String.UTF8.encode(names[i]);
    keptNames.push(name);
    keptWaits[3 * i] = <u32>changetype<usize>(name);
    keptWaits[3 * i + 1] = name.byteLength;
    keptWaits[3 * i + 2] = i < versions.length ? versions[i] : 0;
  }
  pre.verb = SUSPEND;
  pre.num_forks = 0;
  pre.waits = address(keptWaits);
  pre.num_waits = names.length;
  pre.wait_ms = milliseconds;
  return pre;
}

/** Keeps the data alive to which `mid` points, until the next step. */
let kept: StaticArray<u32> = [];
let keptDrafts: StaticArray<u32> = [];
let keptModel: ArrayBuffer = new ArrayBuffer(0);

function answer(verb: u32, kind: u32, row: u32, length: u32): MidResult {
  memory.fill(changetype<usize>(mid) + 4, 0, offsetof<MidResult>() - 4);
  mid.verb = verb;
  mid.row_kind = kind;
  mid.row = row;
  mid.row_len = length;
  return mid;
}

/** Ends the sequence. */
export function ended(): MidResult {
  return answer(STOP, 0, 0, 0);
}

/** Samples one of these tokens. */
export function sample(allowed: TokenSet): MidResult {
  kept = allowed.words;
  return answer(SAMPLE, ROW_BITMASK, address(kept), kept.length);
}

/** Samples any token. */
export function sampleAny(): MidResult {
  return answer(SAMPLE, ROW_ALL, 0, 0);
}

/** Forces this token, as the only one allowed. */
export function force(token: u32): MidResult {
  return answer(SAMPLE, ROW_TOKEN, token, 0);
}

/**
 * Removes the last `backtrack` tokens, then appends `tokens`; samples nothing. With nothing to remove or append, the
 * sequence waits for a step.
 */
export function splice(backtrack: u32, tokens: StaticArray<u32>): MidResult {
  kept = tokens;
  answer(SPLICE, 0, 0, 0);
  mid.backtrack = backtrack;
  mid.ff_tokens = address(kept);
  mid.num_ff_tokens = kept.length;
  return mid;
}

/**
 * Shows the distribution of the next token before this sequence decides: aici_mid_process is called again once the model
 * has computed it, without new tokens, and `looked` is true. Then `logits` has all logits, or, with `top_logprobs`, the
 * source TOP the most likely tokens at temperature 1. `own`: without the logits of sequences that follow this one.
 * Requires CAP_LOOK.
 */
export function look(top_logprobs: u32 = 0, own: bool = false): MidResult {
  answer(LOOK, 0, 0, 0);
  mid.top_logprobs = top_logprobs;
  if (own) mid.flags |= MID_OWN;
  return mid;
}

/**
 * From now on this sequence gets the tokens of another one of its request, the leader, and no function is called any more.
 * The leader's tokens are sampled from the sum of the logits of both, and of others that follow it, each times its weight;
 * the leader's own weight makes the sum of all weights 1. `model`: the name of a second model of the engine, which
 * computes the logits of this sequence. Requires CAP_FOLLOW.
 */
export function follow(leader: u32, weight: f32, model: string = ""): MidResult {
  answer(FOLLOW, 0, leader, 0);
  mid.temperature = weight;
  keptModel = String.UTF8.encode(model);
  mid.ff_tokens = changetype<usize>(keptModel) as u32;
  mid.num_ff_tokens = keptModel.byteLength;
  return mid;
}

/**
 * Names tokens that this controller expects after the one that `mid` samples. If the engine samples them indeed, it needs
 * fewer passes of the model; they do not change what is sampled. At most CAP_DRAFTS.
 */
export function withDrafts(drafts: StaticArray<u32>): MidResult {
  keptDrafts = drafts;
  mid.flags |= MID_DRAFTS;
  mid.ff_tokens = address(keptDrafts);
  mid.num_ff_tokens = keptDrafts.length;
  return mid;
}

/** Returns whether this call answers `look`. */
export function looked(): bool {
  return (arg.flags & ARG_LOOKED) != 0;
}

/** Returns the logits of the next token, one for each token of the vocabulary, if the last result was `look()`. */
export function logits(): StaticArray<f32> {
  const found = new StaticArray<f32>(looked() && arg.num_top == 0 ? vocabulary().vocab_size : 0);
  read(LOGITS, 0, changetype<usize>(found), 4 * found.length);
  return found;
}

/** Returns the address of an array, for the fields of a result. It must be reachable until the host has read it. */
export function address(words: StaticArray<u32>): u32 {
  return <u32>changetype<usize>(words);
}

/** Reads `length` bytes of one of the host's lists, such as ARG. */
export function readBytes(source: u32, length: u32): Uint8Array {
  const bytes = new Uint8Array(length);
  read(source, 0, bytes.dataStart, length);
  return bytes;
}

/** Reads `count` words of one of the host's lists, such as PROMPT. */
export function readWords(source: u32, count: u32): StaticArray<u32> {
  const words = new StaticArray<u32>(count);
  read(source, 0, changetype<usize>(words), 4 * count);
  return words;
}

/** Returns the tokens appended since the last step: one sampled token, or those of a splice. */
export function tokens(): StaticArray<u32> {
  return readWords(TOKENS, arg.num_tokens);
}

/** Tokenizes a text with the model's tokenizer; fails if the vocabulary cannot spell it. */
export function tokensOf(text: string): StaticArray<u32> {
  const bytes = String.UTF8.encode(text);
  const count = tokenize(changetype<usize>(bytes), bytes.byteLength);
  if (count == NO_TOKENS) fail("the vocabulary cannot spell: " + text);
  return readWords(TOKENIZED, count);
}

let mapped: usize = 0;

/** Returns the header of the vocabulary image. The first call maps the image; later calls do not call the host. */
export function vocabulary(): VocabularyHeader {
  if (mapped == 0) mapped = changetype<usize>(host_vocabulary());
  return changetype<VocabularyHeader>(mapped);
}

/** Returns the address of a section of the vocabulary image, such as `vocabulary().text_mask`. */
export function section(offset: u32): usize {
  return changetype<usize>(vocabulary()) + offset;
}

/** Returns the bytes of a token; for a special token, its name. */
export function tokenBytes(token: u32): StaticArray<u8> {
  const place = section(vocabulary().token_offsets) + 4 * token;
  const start = load<u32>(place);
  const bytes = new StaticArray<u8>(load<u32>(place, 4) - start);
  memory.copy(changetype<usize>(bytes), section(vocabulary().token_bytes) + start, bytes.length);
  return bytes;
}

/** A set of tokens in the format of the host: bit t & 31 of word t >> 5. Keep sets and reuse them. */
export class TokenSet {
  words: StaticArray<u32> = new StaticArray<u32>(vocabulary().mask_words);

  allow(token: u32): void {
    this.words[token >> 5] |= 1 << (token & 31);
  }
  forbid(token: u32): void {
    this.words[token >> 5] &= ~(1 << (token & 31));
  }
  allows(token: u32): bool {
    return ((this.words[token >> 5] >> (token & 31)) & 1) != 0;
  }
  /** Allows every token with text. */
  allowText(): void {
    const text = section(vocabulary().text_mask);
    for (let i = 0; i < this.words.length; i++) this.words[i] |= load<u32>(text + 4 * i);
  }
  /** Allows the end-of-sequence tokens. */
  allowEos(): void {
    const eos = section(vocabulary().eos);
    for (let i: u32 = 0; i < vocabulary().num_eos; i++) this.allow(load<u32>(eos + 4 * i));
  }
  /** The number of tokens in the set. */
  get count(): u32 {
    let count: u32 = 0;
    for (let i = 0; i < this.words.length; i++) count += popcnt(this.words[i]);
    return count;
  }
}

/** Returns the value of a variable, which all forks of the request share; null if it does not exist. */
export function getVariable(name: string): string | null {
  const bytes = String.UTF8.encode(name);
  const length = memory.data(4);
  if (var_get(changetype<usize>(bytes), bytes.byteLength, length) == 0) return null;
  const value = readBytes(VALUE, load<u32>(length));
  return String.UTF8.decodeUnsafe(value.dataStart, value.length);
}

/** Sets a variable, or appends to it (`op`), if its version is `when`. Returns the new version, or 0 if it differs. */
export function writeVariable(name: string, value: string, op: u32 = SET, when: u32 = ANY_VERSION): u32 {
  const key = String.UTF8.encode(name);
  const bytes = String.UTF8.encode(value);
  return var_write(
    changetype<usize>(key), key.byteLength, changetype<usize>(bytes), bytes.byteLength, op, when,
  );
}

/** Makes a call with arguments in JSON; returns the name of the variable that will have the answer. */
export function call(name: string, args: string): string {
  const key = String.UTF8.encode(name);
  const bytes = String.UTF8.encode(args);
  return "aici.call." + host_call(changetype<usize>(key), key.byteLength, changetype<usize>(bytes), bytes.byteLength).toString();
}

/** Ends the sequence with an error with this message. An exception does the same. */
export function fail(message: string): void {
  const bytes = String.UTF8.encode(message);
  host_fail(changetype<usize>(bytes), bytes.byteLength);
  unreachable();
}

@external("wasi_snapshot_preview1", "fd_write")
declare function fd_write(fd: u32, pieces: usize, count: u32, written: usize): u32;

/** Writes a line to the log that the user sees. */
export function log(line: string): void {
  write(line);
}

function write(line: string): void {
  const bytes = String.UTF8.encode(line + "\n");
  const piece = memory.data(12); // address and length, then the number of written bytes
  store<u32>(piece, <u32>changetype<usize>(bytes));
  store<u32>(piece, bytes.byteLength, 4);
  fd_write(1, piece, 1, piece + 8);
}

// Substitutes for functions that the standard library imports from its host; asconfig.json selects them.

/** Called for an exception or a failed assertion. */
export function aici_abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const what = message === null ? "aborted" : message;
  fail(what + " (" + (file === null ? "" : file) + ":" + line.toString() + ":" + column.toString() + ")");
}

@external("wasi_snapshot_preview1", "random_get")
declare function random_get(place: usize, length: u32): u32;

/** Returns the seed of Math.random(), which follows from the request's seed. */
export function aici_seed(): f64 {
  const place = memory.data(8);
  random_get(place, 8);
  return reinterpret<f64>(load<u64>(place));
}

/** Substitutes for console.log and similar functions. */
export namespace aici_console {
  export function log(line: string = ""): void {
    write(line);
  }
}
