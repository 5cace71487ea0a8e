/* script.h - what an interpreter and the core of script controllers say to each other.
 *
 * The core (this folder) follows the sequence, generates under constraints, forks and waits; the interpreter runs
 * the script, which only decides. A script either has a coroutine `main`, whose awaited actions the core carries
 * out step by step without it, or the callbacks of the controller interface by name.
 *
 * Texts are bytes with a length, as a rule UTF-8. What the core returns a pointer to is valid until its next call.
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

/* ---- what each interpreter defines ---- */

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

/* The language's name, as users know it. */
extern const char interpreter_language[];
/* Runs the top level of a script; false: it failed. `argument` is JSON. */
bool interpreter_load(script_text name, script_text source, script_text argument);
/* Does the script define this? */
bool interpreter_has(script_callback which);
/* Starts `main`, or goes on with it after the action that it awaits is over. */
script_state interpreter_resume(void);
/* Calls a callback; false: it failed. Its answer is given by script_answer_...: by default, to go on. */
bool interpreter_call(script_callback which);
/* What went wrong: the error with its traceback. */
script_text interpreter_failure(void);
/* Called when no code of the interpreter is active: the time to collect garbage. */
void interpreter_idle(void);

/* ---- failures ---- */

/* Functions that may fail return NULL, or what was wrong: the interpreter raises it. */
typedef const char *script_error;

/* Calls body(data); true if it failed by aici::fail, whose message is script_failure(). (catch_eh.c) */
bool script_try(void (*body)(void *), void *data);
script_error script_failure(void);

/* ---- the sequence ---- */

/* All tokens, the prompt's included, as they will be when what the script has forced is appended. */
script_tokens script_all_tokens(void);
/* How many of them are the prompt's. */
size_t script_prompt_size(void);
/* Appends tokens, or takes tokens back until there are `size`: done together, before anything else is generated. */
script_error script_force(script_tokens tokens);
script_error script_rewind(size_t size);
/* A mark at the present end. */
uint32_t script_label(void);
/* Where it is; an error if it was taken back since. */
script_error script_label_place(uint32_t label, size_t *place);

/* ---- patterns: what a generated text has to be like ---- */

/* Kinds of patterns, in the order of their names in patterns.cpp. */
typedef enum script_kind {
  SCRIPT_REGEX,
  SCRIPT_OPTIONS,   /* a JSON list of texts */
  SCRIPT_SCHEMA,    /* {"schema": ..., "whitespace": "flexible", "compact" or "spaced"} */
  SCRIPT_SUBSTRING, /* {"text": ..., "end": ...}, the second if wanted */
  SCRIPT_KBNF,
  SCRIPT_LARK,
  SCRIPT_GBNF,
  SCRIPT_YACC,
} script_kind;

/* Makes a pattern, or finds the one made of the same source. It stays. */
script_error script_pattern(script_kind kind, script_text source, uint32_t *pattern);

/* A constraint of its own that follows a text by hand; `script_unfollow` gives it back. */
script_error script_follow(uint32_t pattern, uint32_t *constraint);
void script_unfollow(uint32_t constraint);
script_error script_follow_append(uint32_t constraint, script_tokens tokens);
bool script_follow_ended(uint32_t constraint);
script_error script_follow_may_end(uint32_t constraint, bool *may_end);
/* What may come: tokens that are certain (and no mask), or a mask; neither: nothing but the end. */
script_error script_follow_next(uint32_t constraint, script_tokens *certain, const uint32_t **mask);

/* ---- actions: what `main` awaits ---- */

#define SCRIPT_NO_LIMIT 0xffffffffu
#define SCRIPT_NO_PATTERN 0u
#define SCRIPT_GREEDY (-1.0f)

typedef struct script_generation {
  uint32_t pattern; /* or SCRIPT_NO_PATTERN */
  uint32_t max_tokens, max_bytes;
  float temperature; /* 0: the request's own */
  bool logprobs;
  uint32_t top; /* most likely tokens of each place */
  const script_text *stops;
  size_t num_stops;
  bool include_stop;
  /* Where the pattern may end, the text also ends if the model would rather write something else. */
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
  float logprob;      /* NaN: it was certain, or nobody asked */
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

/* Each begins an action, which is over when interpreter_resume is called. */
script_error script_begin_generation(const script_generation *what);
/* One token, under a mask (NULL: any), which is copied. */
script_error script_begin_sample(const uint32_t *mask, float temperature, uint32_t top);
script_error script_begin_fork(uint32_t count);
void script_begin_wait(const script_text *names, size_t count);
/* Brings what was forced into the sequence, and waits for the next step. */
void script_begin_step(void);

/* What came of the action that is over. */
script_error script_generation_result(script_generated *result);
script_error script_sample_result(script_generated *result);
script_error script_fork_result(uint32_t *index);
script_error script_wait_result(void);

/* ---- callbacks: what they see and answer ---- */

typedef struct script_step {
  uint32_t sequence, number;
  script_tokens tokens;
  uint32_t backtrack;
  bool sampled;
  float logprob, allowed_mass;
  const script_top *top;
  size_t num_top;
  script_tokens group;
} script_step;

script_step script_present_step(void);

void script_answer_stop(void);
void script_answer_suspend(void);
void script_answer_fork(uint32_t count);
script_error script_answer_sample(const uint32_t *mask, float temperature, uint32_t top);
void script_answer_splice(uint32_t backtrack, script_tokens tokens);

/* ---- the host ---- */

uint32_t script_vocabulary_size(void);
uint32_t script_mask_words(void);
script_text script_token_bytes(uint32_t token);
bool script_token_is_special(uint32_t token);
/* The first end-of-sequence tokens. */
script_tokens script_end_tokens(void);
/* Of text: fails if the vocabulary cannot spell it. */
script_error script_tokenize(script_text text, script_tokens *tokens);
script_error script_detokenize(script_tokens tokens, script_text *text);
/* Every token id, and every token that is text. */
void script_mask_all(uint32_t *mask);
void script_mask_text(uint32_t *mask);

uint32_t script_capability(script_text name, bool *known);
/* False: it is missing. */
bool script_get_variable(script_text name, script_text *value, uint32_t *version);
#define SCRIPT_ANY_VERSION 0xffffffffu
/* The new version; 0 if the version was another one. */
script_error script_set_variable(script_text name, script_text value, bool append, uint32_t when_version,
                                 uint32_t *version);
void script_log(script_text text);
/* Ends the sequence. In `main` it returns, for what is fixed already has yet to be written: the interpreter leaves
 * `main` then by an error, which counts for nothing. */
void script_stop(void);
__attribute__((noreturn)) void script_fail(script_text message);

#ifdef __cplusplus
}
#endif

#endif /* AICI_SCRIPT_H */
