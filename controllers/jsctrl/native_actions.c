/* The module _aici: sequence, patterns, actions and callbacks of script.h. Scripts use library/aici.js. */
#include <math.h>

#include "context.h"
#include "convert.h"
#include "script.h"

#define MOST_NAMES 64

bool aici_action_awaited;

/* ---- the sequence ---- */

FUNCTION(force) {
  UNUSED;
  script_tokens tokens;
  uint32_t *keep;
  if (!to_tokens(js, of[0], &tokens, &keep)) return JS_EXCEPTION;
  const script_error error = script_force(tokens);
  js_free(js, keep);
  RAISE_IF(error);
  return JS_UNDEFINED;
}

FUNCTION(rewindTo) {
  UNUSED;
  uint32_t size;
  if (!to_number(js, of[0], UINT32_MAX, &size)) return JS_EXCEPTION;
  RAISE_IF(script_rewind(size));
  return JS_UNDEFINED;
}

/* role, name of the tool, content */
FUNCTION(turn) {
  UNUSED;
  uint32_t role;
  if (!to_number(js, of[0], SCRIPT_ASSISTANT, &role)) return JS_EXCEPTION;
  const script_text name = to_text(js, of[1]), content = to_text(js, of[2]);
  const bool well = name.data != NULL && content.data != NULL;
  const script_error error = well ? script_turn((script_role)role, name, content) : NULL;
  if (name.data != NULL) JS_FreeCString(js, name.data);
  if (content.data != NULL) JS_FreeCString(js, content.data);
  if (!well) return JS_EXCEPTION;
  RAISE_IF(error);
  return JS_UNDEFINED;
}

FUNCTION(size) {
  UNUSED;
  return JS_NewUint32(js, (uint32_t)script_all_tokens().size);
}

FUNCTION(promptSize) {
  UNUSED;
  return JS_NewUint32(js, (uint32_t)script_prompt_size());
}

/* Returns the tokens between two places. */
static bool part(JSContext *js, JSValueConst *of, script_tokens *found) {
  const script_tokens all = script_all_tokens();
  uint32_t from, to;
  if (!to_number(js, of[0], (uint32_t)all.size, &from) || !to_number(js, of[1], (uint32_t)all.size, &to)) return false;
  *found = (script_tokens){all.data + from, to > from ? to - from : 0};
  return true;
}

FUNCTION(tokensBetween) {
  UNUSED;
  script_tokens found;
  return part(js, of, &found) ? from_tokens(js, found) : JS_EXCEPTION;
}

FUNCTION(textBetween) {
  UNUSED;
  script_tokens found;
  script_text text;
  if (!part(js, of, &found)) return JS_EXCEPTION;
  RAISE_IF(script_detokenize(found, &text));
  return from_text(js, text);
}

FUNCTION(mark) {
  UNUSED;
  return JS_NewUint32(js, script_label());
}

FUNCTION(place) {
  UNUSED;
  uint32_t label;
  size_t found;
  if (!to_number(js, of[0], UINT32_MAX, &label)) return JS_EXCEPTION;
  RAISE_IF(script_label_place(label, &found));
  return JS_NewUint32(js, (uint32_t)found);
}

/* ---- patterns ---- */

FUNCTION(pattern) {
  UNUSED;
  uint32_t kind, number;
  if (!to_number(js, of[0], SCRIPT_YACC, &kind)) return JS_EXCEPTION;
  const script_text source = to_text(js, of[1]);
  if (source.data == NULL) return JS_EXCEPTION;
  const script_error error = script_pattern((script_kind)kind, source, &number);
  JS_FreeCString(js, source.data);
  RAISE_IF(error);
  return JS_NewUint32(js, number);
}

FUNCTION(follow) {
  UNUSED;
  uint32_t pattern, number;
  if (!to_number(js, of[0], UINT32_MAX, &pattern)) return JS_EXCEPTION;
  RAISE_IF(script_follow(pattern, &number));
  return JS_NewUint32(js, number);
}

FUNCTION(unfollow) {
  UNUSED;
  uint32_t number;
  if (!to_number(js, of[0], UINT32_MAX, &number)) return JS_EXCEPTION;
  script_unfollow(number);
  return JS_UNDEFINED;
}

FUNCTION(followAppend) {
  UNUSED;
  uint32_t number;
  script_tokens tokens;
  uint32_t *keep;
  if (!to_number(js, of[0], UINT32_MAX, &number) || !to_tokens(js, of[1], &tokens, &keep)) return JS_EXCEPTION;
  const script_error error = script_follow_append(number, tokens);
  js_free(js, keep);
  RAISE_IF(error);
  return JS_UNDEFINED;
}

FUNCTION(followEnded) {
  UNUSED;
  uint32_t number;
  if (!to_number(js, of[0], UINT32_MAX, &number)) return JS_EXCEPTION;
  return JS_NewBool(js, script_follow_ended(number));
}

FUNCTION(followMayEnd) {
  UNUSED;
  uint32_t number;
  bool may_end;
  if (!to_number(js, of[0], UINT32_MAX, &number)) return JS_EXCEPTION;
  RAISE_IF(script_follow_may_end(number, &may_end));
  return JS_NewBool(js, may_end);
}

/* Returns forced tokens as an array, a mask as a Uint8Array, or null if no token is allowed. */
FUNCTION(followNext) {
  UNUSED;
  uint32_t number;
  script_tokens certain;
  const uint32_t *mask;
  if (!to_number(js, of[0], UINT32_MAX, &number)) return JS_EXCEPTION;
  RAISE_IF(script_follow_next(number, &certain, &mask));
  if (certain.size != 0) return from_tokens(js, certain);
  return mask == NULL ? JS_NULL : JS_NewUint8ArrayCopy(js, (const uint8_t *)mask, script_mask_words() * sizeof *mask);
}

/* ---- actions ---- */

static JSValue awaited(JSContext *js, script_error error) {
  RAISE_IF(error);
  aici_action_awaited = true;
  return JS_UNDEFINED;
}

/* Converts an array of texts for the core; free it with free_texts. */
static bool to_texts(JSContext *js, JSValueConst array, script_text *texts, size_t *count) {
  int64_t length;
  *count = 0;
  if (JS_GetLength(js, array, &length) != 0) return false;
  if (length > MOST_NAMES) {
    JS_ThrowRangeError(js, "at most %d texts are possible here", MOST_NAMES);
    return false;
  }
  for (int64_t i = 0; i < length; i++) {
    const JSValue item = JS_GetPropertyUint32(js, array, (uint32_t)i);
    texts[i] = to_text(js, item);
    JS_FreeValue(js, item);
    if (texts[i].data == NULL) return false;
    ++*count;
  }
  return true;
}

static void free_texts(JSContext *js, const script_text *texts, size_t count) {
  for (size_t i = 0; i < count; i++) JS_FreeCString(js, texts[i].data);
}

/* pattern, maxTokens, maxBytes, logprobs, stops, includeStop, leave, options */
FUNCTION(beginGeneration) {
  UNUSED;
  script_generation what = {.logprobs = JS_ToBool(js, of[3]) > 0,
                            .include_stop = JS_ToBool(js, of[5]) > 0,
                            .leave = JS_ToBool(js, of[6]) > 0};
  script_text stops[MOST_NAMES];
  if (!to_number(js, of[0], UINT32_MAX, &what.pattern) || !to_limit(js, of[1], &what.max_tokens) ||
      !to_limit(js, of[2], &what.max_bytes))
    return JS_EXCEPTION;
  const bool well = to_options(js, of[7], &what.options) && to_texts(js, of[4], stops, &what.num_stops);
  what.stops = stops;
  const script_error error = well ? script_begin_generation(&what) : NULL;
  free_texts(js, stops, what.num_stops);
  js_free(js, (void *)what.options.biases);
  return well ? awaited(js, error) : JS_EXCEPTION;
}

static const char *const finishes[] = {"complete", "eos", "stop", "max_tokens", "max_bytes"};

/* {text, finishReason, details} */
FUNCTION(generated) {
  UNUSED;
  script_generated result;
  RAISE_IF(script_generation_result(&result));
  const JSValue all = JS_NewObject(js), tokens = JS_NewArray(js);
  for (size_t i = 0; i < result.num_tokens; i++)
    JS_SetPropertyUint32(js, tokens, (uint32_t)i, from_scored(js, &result.tokens[i], result.tops));
  JS_SetPropertyStr(js, all, "text", from_text(js, result.text));
  JS_SetPropertyStr(js, all, "finishReason", JS_NewString(js, finishes[result.finish]));
  JS_SetPropertyStr(js, all, "details", tokens);
  return all;
}

FUNCTION(generatedText) {
  UNUSED;
  script_generated result;
  RAISE_IF(script_generation_result(&result));
  return from_text(js, result.text);
}

/* Calls a function with a row: a mask or null, and options. */
static bool with_row(JSContext *js, JSValueConst *of, script_error (*use)(const script_row *), script_error *error) {
  script_row row = {0};
  uint32_t *mask;
  const bool well = to_mask(js, of[0], &mask) && to_options(js, of[1], &row.options);
  row.mask = mask;
  if (well) *error = use(&row);
  js_free(js, (void *)row.options.biases);
  return well;
}

/* mask or null, options */
FUNCTION(beginSample) {
  UNUSED;
  script_error error;
  return with_row(js, of, script_begin_sample, &error) ? awaited(js, error) : JS_EXCEPTION;
}

FUNCTION(sampled) {
  UNUSED;
  script_generated result;
  RAISE_IF(script_sample_result(&result));
  return from_scored(js, result.tokens, result.tops);
}

/* ---- distributions: logits are the bytes of a Float32Array ---- */

static JSValue from_logits(JSContext *js, const float *logits, size_t size) {
  return JS_NewUint8ArrayCopy(js, (const uint8_t *)logits, size * sizeof *logits);
}

static const float *to_logits(JSContext *js, JSValueConst value, size_t *size) {
  const float *const logits = (const float *)(const void *)JS_GetUint8Array(js, size, value);
  *size /= sizeof *logits;
  if (logits == NULL || *size == script_vocabulary_size()) return logits;
  JS_ThrowTypeError(js, "a distribution has one logit for every token of the vocabulary");
  return NULL;
}

/* number of tokens; 0: all logits; without those of sequences that follow */
FUNCTION(beginLook) {
  UNUSED;
  uint32_t top;
  if (!to_number(js, of[0], UINT32_MAX, &top)) return JS_EXCEPTION;
  return awaited(js, script_begin_look(top, JS_ToBool(js, of[1]) > 0));
}

/* Returns all logits, or the most likely tokens if these were asked for. */
FUNCTION(looked) {
  UNUSED;
  script_distribution found;
  RAISE_IF(script_look_result(&found));
  return found.size == 0 ? from_top(js, found.top, found.num_top) : from_logits(js, found.logits, found.size);
}

/* leader, weight, name of a second model */
FUNCTION(beginFollow) {
  UNUSED;
  uint32_t leader;
  double weight;
  if (!to_number(js, of[0], UINT32_MAX, &leader) || JS_ToFloat64(js, &weight, of[1]) != 0) return JS_EXCEPTION;
  const script_text model = to_text(js, of[2]);
  if (model.data == NULL) return JS_EXCEPTION;
  const script_error error = script_begin_follow(leader, (float)weight, model);
  JS_FreeCString(js, model.data);
  return awaited(js, error);
}

FUNCTION(forkGroup) {
  UNUSED;
  return from_tokens(js, script_fork_group());
}

FUNCTION(norm) {
  UNUSED;
  size_t size;
  const float *const logits = to_logits(js, of[0], &size);
  return logits == NULL ? JS_EXCEPTION : JS_NewFloat64(js, script_norm(logits, size));
}

/* logits, norm */
FUNCTION(entropy) {
  UNUSED;
  size_t size;
  double norm;
  const float *const logits = to_logits(js, of[0], &size);
  if (logits == NULL || JS_ToFloat64(js, &norm, of[1]) != 0) return JS_EXCEPTION;
  return JS_NewFloat64(js, script_entropy(logits, size, norm));
}

/* logits, norm, mask */
FUNCTION(mass) {
  UNUSED;
  size_t size;
  double norm;
  uint32_t *mask;
  const float *const logits = to_logits(js, of[0], &size);
  if (logits == NULL || JS_ToFloat64(js, &norm, of[1]) != 0 || !to_mask(js, of[2], &mask) || mask == NULL)
    return JS_EXCEPTION;
  return JS_NewFloat64(js, script_mass(logits, size, norm, mask));
}

/* logits, norm, count */
FUNCTION(likely) {
  UNUSED;
  size_t size;
  double norm;
  uint32_t wanted;
  const float *const logits = to_logits(js, of[0], &size);
  if (logits == NULL || JS_ToFloat64(js, &norm, of[1]) != 0 || !to_number(js, of[2], UINT32_MAX, &wanted))
    return JS_EXCEPTION;
  if (wanted > size) wanted = (uint32_t)size;
  script_top *const top = js_malloc(js, (wanted + 1) * sizeof *top);
  if (top == NULL) return JS_EXCEPTION;
  script_likely(logits, size, norm, top, wanted);
  const JSValue list = from_top(js, top, wanted);
  js_free(js, top);
  return list;
}

FUNCTION(beginFork) {
  UNUSED;
  uint32_t forks;
  if (!to_number(js, of[0], UINT32_MAX, &forks)) return JS_EXCEPTION;
  return awaited(js, script_begin_fork(forks));
}

FUNCTION(forked) {
  UNUSED;
  uint32_t index;
  RAISE_IF(script_fork_result(&index));
  return JS_NewUint32(js, index);
}

/* names, milliseconds or 0 */
FUNCTION(beginWait) {
  UNUSED;
  script_text names[MOST_NAMES];
  size_t number;
  const bool well = to_texts(js, of[0], names, &number);
  uint32_t milliseconds;
  const bool timed = well && to_number(js, of[1], UINT32_MAX, &milliseconds);
  if (timed) script_begin_wait(names, number, milliseconds);
  free_texts(js, names, number);
  return timed ? awaited(js, NULL) : JS_EXCEPTION;
}

FUNCTION(waited) {
  UNUSED;
  bool there;
  RAISE_IF(script_wait_result(&there));
  return JS_NewBool(js, there);
}

FUNCTION(beginStep) {
  UNUSED;
  script_begin_step();
  return awaited(js, NULL);
}

/* ---- callbacks ---- */

FUNCTION(presentStep) {
  UNUSED;
  const script_step step = script_present_step();
  const JSValue all = JS_NewObject(js);
  JS_SetPropertyStr(js, all, "sequence", JS_NewUint32(js, step.sequence));
  JS_SetPropertyStr(js, all, "number", JS_NewUint32(js, step.number));
  JS_SetPropertyStr(js, all, "tokens", from_tokens(js, step.tokens));
  JS_SetPropertyStr(js, all, "backtrack", JS_NewUint32(js, step.backtrack));
  JS_SetPropertyStr(js, all, "sampled", JS_NewBool(js, step.sampled));
  JS_SetPropertyStr(js, all, "logprob", from_logprob(js, step.logprob));
  JS_SetPropertyStr(js, all, "allowedMass", from_logprob(js, step.allowed_mass));
  JS_SetPropertyStr(js, all, "topLogprobs", from_top(js, step.top, step.num_top));
  JS_SetPropertyStr(js, all, "forkGroup", from_tokens(js, step.group));
  JS_SetPropertyStr(js, all, "looked", JS_NewBool(js, step.looked));
  JS_SetPropertyStr(js, all, "distribution",
                    step.num_logits == 0 ? JS_NULL : from_logits(js, step.logits, step.num_logits));
  return all;
}

FUNCTION(answerStop) {
  UNUSED;
  script_answer_stop();
  return JS_UNDEFINED;
}

FUNCTION(answerSuspend) {
  UNUSED;
  script_answer_suspend();
  return JS_UNDEFINED;
}

FUNCTION(answerFork) {
  UNUSED;
  uint32_t forks;
  if (!to_number(js, of[0], UINT32_MAX, &forks)) return JS_EXCEPTION;
  script_answer_fork(forks);
  return JS_UNDEFINED;
}

FUNCTION(answerSample) {
  UNUSED;
  script_error error;
  if (!with_row(js, of, script_answer_sample, &error)) return JS_EXCEPTION;
  RAISE_IF(error);
  return JS_UNDEFINED;
}

FUNCTION(answerLook) {
  UNUSED;
  uint32_t top;
  if (!to_number(js, of[0], UINT32_MAX, &top)) return JS_EXCEPTION;
  RAISE_IF(script_answer_look(top));
  return JS_UNDEFINED;
}

FUNCTION(answerSplice) {
  UNUSED;
  uint32_t backtrack, *keep;
  script_tokens tokens;
  if (!to_number(js, of[0], UINT32_MAX, &backtrack) || !to_tokens(js, of[1], &tokens, &keep)) return JS_EXCEPTION;
  script_answer_splice(backtrack, tokens);
  js_free(js, keep);
  return JS_UNDEFINED;
}

#define ENTRY(name, arguments) JS_CFUNC_DEF(#name, arguments, name)

static const JSCFunctionListEntry entries[] = {
    ENTRY(force, 1), ENTRY(rewindTo, 1), ENTRY(turn, 3), ENTRY(size, 0), ENTRY(promptSize, 0), ENTRY(tokensBetween, 2),
    ENTRY(textBetween, 2), ENTRY(mark, 0), ENTRY(place, 1), ENTRY(pattern, 2), ENTRY(follow, 1), ENTRY(unfollow, 1),
    ENTRY(followAppend, 2), ENTRY(followEnded, 1), ENTRY(followMayEnd, 1), ENTRY(followNext, 1),
    ENTRY(beginGeneration, 8), ENTRY(generated, 0), ENTRY(generatedText, 0), ENTRY(beginSample, 2), ENTRY(sampled, 0),
    ENTRY(beginFork, 1), ENTRY(forked, 0), ENTRY(beginWait, 2), ENTRY(waited, 0), ENTRY(beginStep, 0),
    ENTRY(presentStep, 0), ENTRY(answerStop, 0), ENTRY(answerSuspend, 0), ENTRY(answerFork, 1),
    ENTRY(answerSample, 2), ENTRY(answerSplice, 2), ENTRY(answerLook, 1), ENTRY(beginLook, 2), ENTRY(looked, 0),
    ENTRY(beginFollow, 3), ENTRY(forkGroup, 0), ENTRY(norm, 1), ENTRY(entropy, 2), ENTRY(mass, 3), ENTRY(likely, 3),
};
#define COUNT ((int)(sizeof entries / sizeof *entries))

static int fill(JSContext *in, JSModuleDef *module) { return JS_SetModuleExportList(in, module, entries, COUNT); }

JSModuleDef *aici_actions_module(JSContext *in) {
  JSModuleDef *const module = JS_NewCModule(in, "_aici", fill);
  if (module != NULL) JS_AddModuleExportList(in, module, entries, COUNT);
  return module;
}
