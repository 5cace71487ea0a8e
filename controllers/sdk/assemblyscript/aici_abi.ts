// aici.h in AssemblyScript: the same names without the prefix AICI_ or aici_. aici.h documents them.
// aici.ts exports all of them too.

// verbs
export const STOP: u32 = 0;
export const CONTINUE: u32 = 1;
export const SUSPEND: u32 = 2;
export const FORK: u32 = 3;
export const SAMPLE: u32 = 4;
export const SPLICE: u32 = 5;
export const LOOK: u32 = 8;
export const FOLLOW: u32 = 9;

// rows
export const ROW_ALL: u32 = 0;
export const ROW_BITMASK: u32 = 1;
export const ROW_TOKEN: u32 = 2;
export const ROW_SPARSE: u32 = 3;
export const ROW_DENSE: u32 = 4;
export const ROW_SAME: u32 = 5;

@unmanaged
export class Bias {
  token: u32;
  bias: f32;
}

// the argument of a step
export const INLINE_TOKENS: u32 = 16;
export const INLINE_GROUP: u32 = 16;

export const ARG_SAMPLED: u32 = 1;
export const ARG_HAS_LOGPROB: u32 = 2;
export const ARG_HURRY: u32 = 4;
export const ARG_LOOKED: u32 = 8;

@unmanaged
export class StepArg {
  size: u32;
  seq_id: u32;
  step: u32;
  flags: u32;
  backtrack: u32;
  num_tokens: u32;
  logprob: f32;
  allowed_mass: f32;
  num_top: u32;
  num_group: u32;
  // tokens: INLINE_TOKENS of u32 and group: INLINE_GROUP of u32; the language has no arrays in structs
}

@unmanaged
export class Top {
  token: u32;
  logprob: f32;
}

// results
@unmanaged
export class Wait {
  name: u32;
  name_len: u32;
  version: u32;
}

@unmanaged
export class PreResult {
  size: u32;
  verb: u32;
  num_forks: u32;
  waits: u32;
  num_waits: u32;
  wait_ms: u32;
}

@unmanaged
export class PostResult {
  size: u32;
  verb: u32;
}

@unmanaged
export class FoundResult {
  size: u32;
  data: u32;
  data_len: u32;
}

export const GREEDY: f32 = -1.0;

export const MID_HOLD_END: u32 = 1;
export const MID_SKIP_PRE: u32 = 2;
export const MID_SKIP_POST: u32 = 4;
export const MID_DRAFTS: u32 = 8;
export const MID_OWN: u32 = 16;

/** `row` and `ff_tokens` are addresses (or the token of ROW_TOKEN): see `address`. */
@unmanaged
export class MidResult {
  size: u32;
  verb: u32;
  row_kind: u32;
  row: u32;
  row_len: u32;
  row_default: f32;
  temperature: f32;
  top_logprobs: u32;
  backtrack: u32;
  ff_tokens: u32;
  num_ff_tokens: u32;
  flags: u32;
  top_p: f32;
  top_k: u32;
  min_p: f32;
  typical_p: f32;
  top_n_sigma: f32;
}

// imports
export const ARG: u32 = 0;
export const PROMPT: u32 = 1;
export const TOKENS: u32 = 2;
export const GROUP: u32 = 3;
export const TOP: u32 = 4;
export const VALUE: u32 = 5;
export const TOKENIZED: u32 = 6;
export const FOUND: u32 = 7;
export const LOGITS: u32 = 8;

export const VOCABULARY_MAGIC: u32 = 0x56434941;
export const VOCABULARY_VERSION: u32 = 1;

/** The header of the vocabulary image. From `nodes` on, the fields are offsets of sections: see `section`. */
@unmanaged
export class VocabularyHeader {
  magic: u32;
  version: u32;
  total_size: u32;
  vocab_size: u32;
  mask_words: u32;
  mask_stride: u32;
  num_nodes: u32;
  num_ordered: u32;
  num_eos: u32;
  num_duplicates: u32;
  num_long: u32;
  max_token_len: u32;
  num_classes: u32;
  bos: u32;
  pad: u32;
  unk: u32;
  nodes: u32;
  order: u32;
  class_masks: u32;
  text_mask: u32;
  token_offsets: u32;
  token_bytes: u32;
  flags: u32;
  eos: u32;
  byte_class: u32;
  duplicates: u32;
  long_tokens: u32;
  num_slices: u32;
  slices: u32;
  slice_masks: u32;
  turns: u32;
  num_turns: u32;
}

export const NO_TOKENS: u32 = 0xffffffff;

export const ANY_VERSION: u32 = 0xffffffff;
export const SET: u32 = 0;
export const APPEND: u32 = 1;

export const CAP_FORK: u32 = 1;
export const CAP_BACKTRACK: u32 = 2;
export const CAP_FF_TOKENS: u32 = 3;
export const CAP_SUSPEND: u32 = 4;
export const CAP_LOGPROBS: u32 = 5;
export const CAP_TOP_LOGPROBS: u32 = 6;
export const CAP_DENSE: u32 = 7;
export const CAP_TOKENIZER: u32 = 8;
export const CAP_MAX_FORKS: u32 = 9;
export const CAP_HOLD_END: u32 = 10;
export const CAP_CALLS: u32 = 11;
export const CAP_LOOK: u32 = 12;
export const CAP_FOLLOW: u32 = 13;
export const CAP_DRAFTS: u32 = 14;

@external("aici", "read")
export declare function read(source: u32, offset: u32, dst: usize, len: u32): u32;
@external("aici", "vocabulary")
export declare function host_vocabulary(): VocabularyHeader;
@external("aici", "tokenize")
export declare function tokenize(src: usize, len: u32): u32;
@external("aici", "var_get")
export declare function var_get(name: usize, name_len: u32, len: usize): u32;
@external("aici", "var_write")
export declare function var_write(
  name: usize, name_len: u32, value: usize, value_len: u32, op: u32, when_version: u32,
): u32;
@external("aici", "call")
export declare function host_call(name: usize, name_len: u32, args: usize, args_len: u32): u32;
@external("aici", "capability")
export declare function capability(id: u32): u32;
@external("aici", "stop")
export declare function stop(): void;
@external("aici", "fail")
export declare function host_fail(message: usize, len: u32): void;
