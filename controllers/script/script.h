/* script.h - the interface between an interpreter and the core of script controllers.
 *
 * The core (this folder) follows the sequence, generates under constraints, forks and waits. The interpreter runs the
 * script, which only decides. A script has either a coroutine `main`, whose awaited actions the core carries out step
 * by step without the script, or the callbacks of the controller interface by name.
 *
 * Texts are bytes with a length, usually UTF-8. Pointers that the core returns are valid until its next call.
 */
#ifndef AICI_SCRIPT_H
#define AICI_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct script_text {
  const char *data;
  size_t size;
} script_text;

typedef struct script_tokens {
  const uint32_t *data;
  size_t size;
} script_tokens;

/* ---- functions that each interpreter defines ---- */

typedef enum script_callback {
  SCRIPT_MAIN, /* a coroutine */
  SCRIPT_INIT_PROMPT,
  SCRIPT_PRE_PROCESS,
  SCRIPT_MID_PROCESS,
  SCRIPT_POST_PROCESS,
} script_callback;

typedef enum script_state {
  SCRIPT_AWAITS, /* an action of the core */
  SCRIPT_ENDED,
  SCRIPT_FAILED, /* interpreter_failure() says how */
} script_state;

/* The language's name, for messages. */
extern const char interpreter_language[];
/* Runs the top level of a script; returns false if it failed. `argument` is JSON. */
bool interpreter_load(script_text name, script_text source, script_text argument);
/* Returns whether the script defines this function. */
bool interpreter_has(script_callback which);
/* Starts `main`, or continues it after the awaited action is complete. */
script_state interpreter_resume(void);
/* Calls a callback; returns false if it failed. It answers by script_answer_...; the default is to continue. */
bool interpreter_call(script_callback which);
/* Returns the error with its traceback. */
script_text interpreter_failure(void);
/* Called when no code of the interpreter is active, so that it can collect garbage. */
void interpreter_idle(void);

/* ---- failures ---- */

/* Functions that may fail return NULL, or an error message, which the interpreter raises. */
typedef const char *script_error;

/* Calls body(data); returns true if it failed by aici::fail. script_failure() has the message. (catch_eh.c) */
bool script_try(void (*body)(void *), void *data);
script_error script_failure(void);

/* ---- the sequence ---- */

/* All tokens, including the prompt's and those that the script has forced but the engine does not have yet. */
script_tokens script_all_tokens(void);
/* The number of the prompt's tokens. */
size_t script_prompt_size(void);
/* Appends tokens, or removes tokens until there are `size`. Both take effect together, before anything is generated. */
script_error script_force(script_tokens tokens);
script_error script_rewind(size_t size);
/* Who a message of a chat is from; `aici::Role`. */
typedef enum script_role { SCRIPT_USER, SCRIPT_SYSTEM, SCRIPT_TOOL, SCRIPT_ASSISTANT } script_role;

/* Appends a message as the model's chat template writes it, up to where an answer begins; `name` is that of a tool.
 * SCRIPT_ASSISTANT: ends an answer and begins another one; without effect where an answer begins. */
script_error script_turn(script_role role, script_text name, script_text content);

/* Creates a label at the current end. */
uint32_t script_label(void);
/* Returns a label's position; an error if the sequence was backtracked to before it. */
script_error script_label_place(uint32_t label, size_t *place);

/* ---- patterns of generated texts ---- */

/* Kinds of patterns, in the order of their names in patterns.cpp. */
typedef enum script_kind {
  SCRIPT_REGEX,
  SCRIPT_OPTIONS,   /* a JSON list of texts */
  SCRIPT_SCHEMA,    /* {"schema": ..., "whitespace": "flexible", "compact" or "spaced"} */
  SCRIPT_SUBSTRING, /* {"text": ..., "end": ...}; "end" is optional */
  SCRIPT_KBNF,
  SCRIPT_LARK,
  SCRIPT_GBNF,
  SCRIPT_YACC,
} script_kind;

/* Makes a pattern, or finds the existing one with the same source. Patterns are never freed. */
script_error script_pattern(script_kind kind, script_text source, uint32_t *pattern);

/* Makes a constraint that a script's callbacks follow; `script_unfollow` frees it. */
script_error script_follow(uint32_t pattern, uint32_t *constraint);
void script_unfollow(uint32_t constraint);
script_error script_follow_append(uint32_t constraint, script_tokens tokens);
bool script_follow_ended(uint32_t constraint);
script_error script_follow_may_end(uint32_t constraint, bool *may_end);
/* The allowed tokens: forced tokens (and no mask), or a mask; with neither, only the end is allowed. */
script_error script_follow_next(uint32_t constraint, script_tokens *certain, const uint32_t **mask);

/* ---- actions that `main` awaits ---- */

#define SCRIPT_NO_LIMIT 0xffffffffu
#define SCRIPT_NO_PATTERN 0u
/* Numbers that are NaN: the request's own option. */
typedef struct script_bias {
  uint32_t token;
  float bias; /* added to the logit; -infinity forbids the token */
} script_bias;

typedef struct script_options {
  double temperature;             /* 0: the most likely token */
  double top_p, typical_p, min_p; /* up to 1 */
  double top_k, top_n_sigma;      /* 0: all tokens */
  uint32_t top_logprobs;          /* number of most likely tokens to report */
  const uint32_t *favoured;       /* a mask of the tokens whose logits get `bias`; NULL: none */
  double bias;
  const script_bias *biases; /* each token at most once */
  size_t num_biases;
  /* The expected text. The model computes the logits after several of its tokens at once; what is sampled is the same. */
  script_tokens prediction;
} script_options;

/* Returns what is wrong with the options, or NULL. */
const char *script_flaw(const script_options *options);

typedef struct script_generation {
  uint32_t pattern; /* or SCRIPT_NO_PATTERN */
  uint32_t max_tokens, max_bytes;
  script_options options;
  bool logprobs;
  const script_text *stops;
  size_t num_stops;
  bool include_stop;
  /* Where the pattern may end, the text also ends if the model prefers a token outside the pattern. */
  bool leave;
} script_generation;

typedef enum script_finish {
  SCRIPT_FINISH_COMPLETE, /* nothing can follow in the pattern */
  SCRIPT_FINISH_END,      /* the model ended its text, or left the pattern */
  SCRIPT_FINISH_STOP,     /* a stop string */
  SCRIPT_FINISH_TOKENS,   /* max_tokens */
  SCRIPT_FINISH_BYTES,    /* max_bytes */
} script_finish;

/* One token of a generated text. */
typedef struct script_scored {
  uint32_t token;
  float logprob;      /* NaN: it was forced, or not requested */
  float allowed_mass; /* likewise */
  uint32_t first_top, num_top; /* in script_generated.tops */
} script_scored;

typedef struct script_top {
  uint32_t token;
  float logprob;
} script_top;

typedef struct script_generated {
  script_text text;
  script_finish finish;
  const script_scored *tokens;
  size_t num_tokens;
  const script_top *tops;
} script_generated;

/* Each function begins an action, which is complete when interpreter_resume is called. Options without a flaw are
 * expected; they and masks are copied. */
script_error script_begin_generation(const script_generation *what);
/* The row of one sampled token. */
typedef struct script_row {
  const uint32_t *mask; /* NULL: any token */
  script_options options;
} script_row;

script_error script_begin_sample(const script_row *row);
script_error script_begin_fork(uint32_t count);
/* Looks at the distribution of the next token before it is sampled: at the `top` most likely tokens; 0: at all logits.
 * `own`: without the logits of sequences that follow this one. */
script_error script_begin_look(uint32_t top, bool own);
/* Follows a sequence until that ends: the action is never complete. `model`: the name of a second model, or empty. */
script_error script_begin_follow(uint32_t leader, float weight, script_text model);
/* The sequences of the last fork, including this one. */
script_tokens script_fork_group(void);
/* Waits until all of these variables exist, or for so many milliseconds (0: without a limit). */
void script_begin_wait(const script_text *names, size_t count, uint32_t milliseconds);
/* Sends forced tokens to the engine, and waits for the next step. */
void script_begin_step(void);

/* The result of the completed action. */
script_error script_generation_result(script_generated *result);
script_error script_sample_result(script_generated *result);
script_error script_fork_result(uint32_t *index);
typedef struct script_distribution {
  const float *logits; /* of every token of the vocabulary, unless a list was asked for */
  size_t size;
  const script_top *top;
  size_t num_top;
} script_distribution;
script_error script_look_result(script_distribution *result);
/* `there`: whether all variables exist. */
script_error script_wait_result(bool *there);

/* ---- distributions: `logits` of tokens, at temperature 1 ---- */

/* The logarithm of the sum of all exponentials: what a logit has more than the token's log-probability. */
double script_norm(const float *logits, size_t size);
double script_entropy(const float *logits, size_t size, double norm);
/* The probability of the tokens of a mask together. */
double script_mass(const float *logits, size_t size, double norm, const uint32_t *mask);
/* The `count` most likely tokens, at most `size`; equal ones by number. */
void script_likely(const float *logits, size_t size, double norm, script_top *top, size_t count);

/* ---- input and answers of callbacks ---- */

typedef struct script_step {
  uint32_t sequence, number;
  script_tokens tokens;
  uint32_t backtrack;
  bool sampled;
  float logprob, allowed_mass;
  const script_top *top;
  size_t num_top;
  script_tokens group;
  bool looked; /* answers script_answer_look */
  const float *logits;
  size_t num_logits;
} script_step;

script_step script_present_step(void);

void script_answer_stop(void);
void script_answer_suspend(void);
void script_answer_fork(uint32_t count);
script_error script_answer_sample(const script_row *row);
script_error script_answer_look(uint32_t top);
void script_answer_splice(uint32_t backtrack, script_tokens tokens);

/* ---- the host ---- */

uint32_t script_vocabulary_size(void);
uint32_t script_mask_words(void);
script_text script_token_bytes(uint32_t token);
bool script_token_is_special(uint32_t token);
/* The first end-of-sequence tokens. */
script_tokens script_eos_tokens(void);
/* Tokenizes text; fails if the vocabulary cannot spell it. */
script_error script_tokenize(script_text text, script_tokens *tokens);
script_error script_detokenize(script_tokens tokens, script_text *text);
/* Every token id, and every token with text. */
void script_mask_all(uint32_t *mask);
void script_mask_text(uint32_t *mask);

uint32_t script_capability(script_text name, bool *known);
/* Returns false if the variable does not exist. */
bool script_get_variable(script_text name, script_text *value, uint32_t *version);
#define SCRIPT_ANY_VERSION 0xffffffffu
/* Returns the new version; 0 if the variable had another version. */
script_error script_set_variable(script_text name, script_text value, bool append, uint32_t when_version,
                                 uint32_t *version);
/* Makes a call, with arguments in JSON. The variable `result` will have the answer. */
script_error script_call(script_text name, script_text arguments, script_text *result);
/* Bits (SCRIPT_HURRY) that the runtime sets while the script runs. */
const volatile uint32_t *script_flags(void);
/* The call has nearly used its time: the interpreter raises an error once, so that the script ends with a traceback. */
#define SCRIPT_HURRY 4u
#define SCRIPT_HURRY_MESSAGE "the script has used up its CPU time: is this an endless loop?"

void script_log(script_text text);
/* Ends the sequence. In `main` it returns, since fixed text must still be written; the interpreter then leaves `main`
 * by an error, which is ignored. */
void script_stop(void);
__attribute__((noreturn)) void script_fail(script_text message);

#ifdef __cplusplus
}
#endif

#endif /* AICI_SCRIPT_H */
