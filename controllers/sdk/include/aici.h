/* aici.h - the binary contract between a controller and the runtime, ABI version 1.
 *
 * A controller is a core WebAssembly module (wasm32, WASI preview 1 "reactor").
 * It exports the functions under "Exports" and may import those under "Imports".
 * All structs are little-endian with 4-byte fields and no padding; all addresses
 * are offsets into the module's exported linear memory, "memory".
 * docs/abi.md explains every rule; this file is the contract in C.
 */
#ifndef AICI_H
#define AICI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AICI_EXPORT(name) __attribute__((export_name(#name), visibility("default")))
#define AICI_IMPORT(name) __attribute__((import_module("aici"), import_name(#name)))

/* Put this line once in every controller: it exports the marker of the ABI version. */
#define AICI_CONTROLLER AICI_EXPORT(aici_abi_v1) void aici_abi_v1(void) {}

/* ---- verbs ------------------------------------------------------------------------ */

enum {
    AICI_STOP = 0,     /* pre, mid, post: end this sequence */
    AICI_CONTINUE = 1, /* pre, post: continue */
    AICI_SUSPEND = 2,  /* pre: skip this step */
    AICI_FORK = 3,     /* pre: continue as num_forks sequences (0 = stop, 1 = continue) */
    AICI_SAMPLE = 4,   /* mid: sample one token under the row */
    AICI_SPLICE = 5,   /* mid: remove `backtrack` tokens, append `ff_tokens`, sample nothing */
    AICI_LOOK = 8,     /* mid: show the distribution of the next token, then call mid_process again (AICI_CAP_LOOK) */
    AICI_FOLLOW = 9,   /* mid: from now on get the tokens of sequence `row`, and take part in sampling them with the
                          weight `temperature` (AICI_CAP_FOLLOW); no function is called any more. `ff_tokens`: the
                          address of the name of a second model, whose logits take part; without one, the engine's own */
};

/* ---- rows: the allowed tokens of a sample ------------------------------------------ */

enum {
    AICI_ROW_ALL = 0,     /* every token of the vocabulary */
    AICI_ROW_BITMASK = 1, /* row: address of uint32_t[row_len], row_len = ceil(vocab_size / 32);
                             bit (t & 31) of word (t >> 5) is set if token t is allowed */
    AICI_ROW_TOKEN = 2,   /* row: the one allowed token id */
    AICI_ROW_SPARSE = 3,  /* row: address of aici_bias[row_len]; all others get row_default */
    AICI_ROW_DENSE = 4,   /* row: address of float[row_len], row_len = vocab_size; -inf forbids */
    AICI_ROW_SAME = 5,    /* the row of this sequence's previous AICI_SAMPLE */
};

typedef struct aici_bias {
    uint32_t token;
    float bias; /* added to the logit; -inf forbids; NaN and +inf are errors */
} aici_bias;

/* ---- the argument of a step ---------------------------------------------------------
 * One per module instance, owned by the guest, at the address that aici_arg() returns.
 * The guest sets `size`; the host fills in the rest (as far as `size` reaches) once per
 * step, before the first of post_process, pre_process, mid_process that is called. */

#define AICI_INLINE_TOKENS 16
#define AICI_INLINE_GROUP 16

enum {
    AICI_ARG_SAMPLED = 1,    /* tokens[0] was sampled under the row of the last mid_process */
    AICI_ARG_HAS_LOGPROB = 2, /* logprob and allowed_mass are known (else NaN) */
    AICI_ARG_HURRY = 4, /* the running call has used 95% of its CPU time: the host sets it meanwhile, the guest
                          clears it. With it, the error of aici_fail is time_limit */
    AICI_ARG_LOOKED = 8 /* answers AICI_LOOK: the distribution is in AICI_LOGITS or AICI_TOP; no tokens have come */
};

typedef struct aici_step_arg {
    uint32_t size;         /* guest: sizeof(aici_step_arg) */
    uint32_t seq_id;       /* this sequence; changes in a fork's child */
    uint32_t step;         /* number of steps of this sequence */
    uint32_t flags;        /* AICI_ARG_* */
    uint32_t backtrack;    /* tokens removed since the last step, before `tokens` were appended */
    uint32_t num_tokens;   /* tokens appended since the last step; the first 16 inline,
                              the rest by aici_read(AICI_TOKENS, ...) */
    float logprob;         /* natural log p(tokens[0]) before masking, at the sampling temperature */
    float allowed_mass;    /* probability of the allowed set in the same distribution */
    uint32_t num_top;      /* entries for aici_read(AICI_TOP, ...): aici_top[] */
    uint32_t num_group;    /* sequences of the fork group (1 = only this one) */
    uint32_t tokens[AICI_INLINE_TOKENS];
    uint32_t group[AICI_INLINE_GROUP]; /* sequence ids; all by aici_read(AICI_GROUP, ...) */
} aici_step_arg;

typedef struct aici_top {
    uint32_t token;
    float logprob;
} aici_top;

/* ---- results: structs whose first field is their size --------------------------------- */

typedef struct aici_wait {
    uint32_t name;     /* address of the name of a variable */
    uint32_t name_len;
    uint32_t version;  /* wait until the variable has a later version: 0 = until it exists */
} aici_wait;

typedef struct aici_pre_result {
    uint32_t size;
    uint32_t verb;      /* STOP, CONTINUE, SUSPEND, FORK */
    uint32_t num_forks; /* FORK */
    uint32_t waits;     /* SUSPEND: address of aici_wait[num_waits]; one of them is enough. A result that ends */
    uint32_t num_waits; /* before these fields, or has 0 in the last two, is suspended for one step */
    uint32_t wait_ms;   /* SUSPEND: wait no longer than this; 0 = without a limit */
} aici_pre_result;

typedef struct aici_post_result {
    uint32_t size;
    uint32_t verb; /* STOP, CONTINUE */
} aici_post_result;

#define AICI_GREEDY (-1.0f)

enum {
    AICI_MID_HOLD_END = 1,  /* SAMPLE, SPLICE: an end-of-sequence token of this result does not end the sequence;
                               the next step reports it like any other token (AICI_CAP_HOLD_END) */
    AICI_MID_SKIP_PRE = 2,  /* aici_pre_process is not called in the next step of this sequence */
    AICI_MID_SKIP_POST = 4, /* aici_post_process is not called either */
    AICI_MID_DRAFTS = 8,    /* SAMPLE: `ff_tokens` are drafts, which this controller expects after the sampled token. They
                               change nothing but the time: the engine may compute them together */
    AICI_MID_OWN = 16,      /* LOOK: the distribution of this sequence alone, without those that follow it */
};

typedef struct aici_mid_result {
    uint32_t size;
    uint32_t verb;          /* STOP, SAMPLE, SPLICE, LOOK, FOLLOW */
    uint32_t row_kind;      /* SAMPLE: AICI_ROW_* */
    uint32_t row;           /* SAMPLE: address, or the token of AICI_ROW_TOKEN. FOLLOW: the sequence that leads */
    uint32_t row_len;       /* SAMPLE: entries at `row` */
    float row_default;      /* SAMPLE, SPARSE: 0 or -inf */
    float temperature;      /* SAMPLE: for this token; 0: the request's own; AICI_GREEDY: greedy. FOLLOW: the weight */
    uint32_t top_logprobs;  /* SAMPLE: requests so many most likely tokens for the next arg; 0 = none.
                               LOOK: so many most likely tokens; 0 = all logits */
    uint32_t backtrack;     /* SPLICE */
    uint32_t ff_tokens;     /* SPLICE, AICI_MID_DRAFTS: address of uint32_t[num_ff_tokens]. FOLLOW: of a name */
    uint32_t num_ff_tokens; /* SPLICE. FOLLOW: bytes of the name; 0 = none */
    uint32_t flags;         /* AICI_MID_*; a result that ends before this field has no flags */
    /* SAMPLE: tokens that are left out, for this token; 0: the request's own option. A result without such options may
     * end before, with .size = offsetof(aici_mid_result, top_p): then the host need not look whether one is set */
    float top_p;            /* keeps the most likely tokens that together reach this probability; 1: all */
    uint32_t top_k;         /* keeps so many most likely tokens */
    float min_p;            /* keeps tokens with this share of the largest probability, up to 1 */
    float typical_p;        /* like top_p, for the tokens whose surprise is nearest to its mean; 1: all */
    float top_n_sigma;      /* keeps logits up to so many standard deviations below the largest */
} aici_mid_result;

typedef struct aici_found_result {
    uint32_t size;
    uint32_t data;     /* address of the bytes */
    uint32_t data_len; /* bytes; 0: nothing */
} aici_found_result;

/* ---- exports ---------------------------------------------------------------------------
 * required: memory, aici_abi_v1, aici_arg, aici_mid_process. The rest is optional.
 *
 *   void aici_abi_v1(void)                marker; AICI_CONTROLLER defines it; never called
 *   aici_step_arg *aici_arg(void)         called once per fresh instance, after _initialize
 *   int  aici_init(uint32_t arg_len)      read the argument with aici_read(AICI_ARG, ...);
 *                                         0 = ready, else the argument is refused (give the reason
 *                                         with aici_fail). Sees no prompt: its result is memoised.
 *   int  aici_warm(void)                  fill tables ahead, a few ms a call: 1 = more to do, 0 = done.
 *                                         May be called after aici_init, while no request waits; sees
 *                                         no prompt. Answers must not depend on its progress. If there
 *                                         is AICI_FOUND, it fills what these bytes describe, then returns 0.
 *   aici_found_result *aici_found(void)   may be called once, after the sequence has ended well: describes
 *                                         what the sequence found, for aici_warm. No other call follows.
 *   int  aici_init_prompt(uint32_t n)     read the n prompt tokens with aici_read(AICI_PROMPT, ...)
 *   aici_pre_result  *aici_pre_process(void)   on the critical path, about 1 ms
 *   aici_mid_result  *aici_mid_process(void)   overlaps the forward pass, about 20 ms
 *   aici_post_result *aici_post_process(void)  on the critical path, about 1 ms
 */

/* ---- imports, module "aici" --------------------------------------------------------------- */

enum {
    AICI_ARG = 0,    /* bytes: the controller argument */
    AICI_PROMPT = 1, /* uint32_t[]: the prompt */
    AICI_TOKENS = 2, /* uint32_t[]: tokens appended in this step */
    AICI_GROUP = 3,  /* uint32_t[]: sequence ids of the fork group */
    AICI_TOP = 4,    /* aici_top[]: most likely tokens of the last distribution */
    AICI_VALUE = 5,  /* bytes: the value found by the last aici_var_get */
    AICI_TOKENIZED = 6, /* uint32_t[]: the result of the last aici_tokenize */
    AICI_FOUND = 7,  /* bytes: in aici_warm, what aici_found of an ended sequence has returned */
    AICI_LOGITS = 8  /* float[vocab_size]: after AICI_LOOK, the logits of the next token as the model has computed
                        them; -inf for ids that are no tokens. Valid in calls with AICI_ARG_LOOKED */
};

/* Copies up to `len` bytes of `source`, from byte `offset` on, to `dst`.
 * Returns the total size of the source in bytes. */
AICI_IMPORT(read) uint32_t aici_read(uint32_t source, uint32_t offset, void *dst, uint32_t len);

/* The vocabulary image begins with its header; docs/vocabulary.md describes the sections. Most
 * controllers need no more than vocab_size, mask_words, text_mask, token_offsets, token_bytes and eos. */
#define AICI_VOCABULARY_MAGIC 0x56434941u
#define AICI_VOCABULARY_VERSION 1
typedef struct aici_vocabulary_header {
    uint32_t magic;          /* AICI_VOCABULARY_MAGIC */
    uint32_t version;        /* AICI_VOCABULARY_VERSION */
    uint32_t total_size;     /* bytes of the image */
    uint32_t vocab_size;     /* token ids are below it */
    uint32_t mask_words;     /* words of a mask: row_len of AICI_ROW_BITMASK */
    uint32_t mask_stride;    /* words from one mask of the image to the next */
    uint32_t num_nodes;      /* nodes of the trie */
    uint32_t num_ordered;    /* tokens in the trie */
    uint32_t num_eos;        /* end-of-sequence tokens */
    uint32_t num_duplicates; /* tokens with the same bytes as another token */
    uint32_t num_long;       /* tokens that are too long for the trie */
    uint32_t max_token_len;  /* bytes of the longest token with text */
    uint32_t num_classes;    /* classes of ASCII bytes */
    uint32_t bos;            /* this and the next two: a token, or 0xffffffff */
    uint32_t pad;
    uint32_t unk;
    uint32_t nodes;          /* from here on offsets of sections: see aici_section */
    uint32_t order;          /* uint32_t[num_ordered]: the tokens of the trie */
    uint32_t class_masks;    /* 32 masks */
    uint32_t text_mask;      /* uint32_t[mask_words]: the tokens with text */
    uint32_t token_offsets;  /* uint32_t[vocab_size + 1]: where a token's bytes are in token_bytes */
    uint32_t token_bytes;    /* char[] */
    uint32_t flags;          /* uint8_t[vocab_size]: 1 special, 2 end of sequence, 4 unused */
    uint32_t eos;            /* uint32_t[num_eos]: the end-of-sequence tokens */
    uint32_t byte_class;     /* uint8_t[256] */
    uint32_t duplicates;     /* uint32_t[num_duplicates][2] */
    uint32_t long_tokens;    /* uint32_t[num_long] */
    uint32_t num_slices;     /* not an offset */
    uint32_t slices;         /* uint32_t[num_slices] */
    uint32_t slice_masks;    /* num_slices masks */
    uint32_t turns;          /* uint32_t[num_turns]: what the chat template writes between messages */
    uint32_t num_turns;      /* not an offset; 0: the vocabulary does not say */
} aici_vocabulary_header;

/* Maps the vocabulary image (read-only, shared) into memory and returns the address of its header.
 * Later calls return the same address: keep it, since every call of the host costs about a microsecond. */
AICI_IMPORT(vocabulary) const void *aici_vocabulary(void);

/* Returns the section of the image at this offset, such as header->text_mask. */
static inline const void *aici_section(const aici_vocabulary_header *header, uint32_t offset) {
    return (const char *)header + offset;
}

/* Tokenizes bytes with the model's tokenizer; bytes that are not valid UTF-8 become the tokens of
 * those bytes. Returns the number of tokens; fetch them with aici_read(AICI_TOKENIZED, ...).
 * Returns AICI_NO_TOKENS if the vocabulary cannot spell these bytes (some lack rare bytes). */
#define AICI_NO_TOKENS 0xffffffffu
AICI_IMPORT(tokenize) uint32_t aici_tokenize(const void *src, uint32_t len);

/* Variables are shared by all forks of one request. Every write raises the version by one;
 * a missing variable has version 0. */
#define AICI_ANY_VERSION 0xffffffffu
enum { AICI_SET = 0, AICI_APPEND = 1 };
/* Returns the version (0 = missing) and stores the value's length at *len (may be NULL). */
AICI_IMPORT(var_get) uint32_t aici_var_get(const char *name, uint32_t name_len, uint32_t *len);
/* Writes if `when_version` is AICI_ANY_VERSION or the current version.
 * Returns the new version, or 0 if the version differed. */
AICI_IMPORT(var_write) uint32_t aici_var_write(const char *name, uint32_t name_len, const void *value,
                                               uint32_t value_len, uint32_t op, uint32_t when_version);

/* Makes a call: whoever answers calls of this request gets the name and the arguments, in JSON. Returns its number,
 * from 1, at once. The answer will be the value of the variable AICI_CALL_RESULT with this number in decimal behind:
 * {"value": ...} or {"error": {"code": ..., "message": ...}}. A sequence may wait for it like for any variable. */
#define AICI_CALL_RESULT "aici.call."
/* The variable with this name, with the number of a sequence in decimal behind, exists once that sequence follows. */
#define AICI_FOLLOWS "aici.follows."
AICI_IMPORT(call) uint32_t aici_call(const char *name, uint32_t name_len, const char *arguments,
                                     uint32_t arguments_len);

enum {
    AICI_CAP_FORK = 1,      /* 1 if the engine can fork */
    AICI_CAP_BACKTRACK = 2, /* 1 if the engine can backtrack */
    AICI_CAP_FF_TOKENS = 3, /* 1 if the engine supports ff_tokens */
    AICI_CAP_SUSPEND = 4,   /* 1 if the engine can suspend a sequence */
    AICI_CAP_LOGPROBS = 5,  /* 1 if logprob and allowed_mass are reported */
    AICI_CAP_TOP_LOGPROBS = 6,     /* maximum of top_logprobs */
    AICI_CAP_DENSE = 7,     /* 1 if SPARSE and DENSE rows are supported */
    AICI_CAP_TOKENIZER = 8, /* 1 if aici_tokenize is the model's own tokenizer, 0 if it is greedy */
    AICI_CAP_MAX_FORKS = 9, /* maximum number of live sequences of a request */
    AICI_CAP_HOLD_END = 10, /* 1 if AICI_MID_HOLD_END has an effect; else an end token always ends the sequence */
    AICI_CAP_CALLS = 11,    /* 1 if somebody answers calls of this request. 0 in aici_init, which serves many requests */
    AICI_CAP_LOOK = 12,     /* AICI_LOOK gives: 0 nothing (an error), 1 the most likely tokens, 2 also all logits */
    AICI_CAP_FOLLOW = 13,   /* 1 if AICI_FOLLOW is supported */
    AICI_CAP_DRAFTS = 14,   /* maximum number of drafts; 0 if AICI_MID_DRAFTS has no effect */
};
/* Returns the value of a capability; 0 for one that this runtime does not know. */
AICI_IMPORT(capability) uint32_t aici_capability(uint32_t id);

/* Ends the sequence at once, as if AICI_STOP had been returned. */
AICI_IMPORT(stop) __attribute__((noreturn)) void aici_stop(void);
/* Ends the sequence with an error with this message. */
AICI_IMPORT(fail) __attribute__((noreturn)) void aici_fail(const char *message, uint32_t len);

#ifdef __cplusplus
}
#endif

#endif /* AICI_H */
