/* The module _aici: script.h for JavaScript. What scripts see is library/aici.js. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "script.h"

#define FUNCTION(name) static JSValue name(JSContext *js, JSValueConst self, int count, JSValueConst *of)
#define UNUSED ((void)js, (void)self, (void)count, (void)of)
#define MOST_NAMES 64

bool aici_action_awaited;

/* ---- between the values of JavaScript and what the core takes and gives ---- */

static JSValue raise(JSContext *js, script_error error) { return JS_ThrowPlainError(js, "%s", error); }
#define RAISE_IF(error)                          \
  do {                                           \
    const script_error problem = (error);        \
    if (problem != NULL) return raise(js, problem); \
  } while (0)

/* A text, to be given back by JS_FreeCString(js, text.data); data is NULL if it is none. */
static script_text to_text(JSContext *js, JSValueConst value) {
  script_text text = {0};
  if (!JS_IsString(value))
    JS_ThrowTypeError(js, "a text is needed");
  else
    text.data = JS_ToCStringLen(js, &text.size, value);
  return text;
}

static bool to_number(JSContext *js, JSValueConst value, uint32_t most, uint32_t *out) {
  double number;
  if (JS_ToFloat64(js, &number, value) != 0) return false;
  if (!(number >= 0 && number <= most && number == floor(number))) {
    JS_ThrowRangeError(js, "a whole number from 0 to %u is needed", most);
    return false;
  }
  *out = (uint32_t)number;
  return true;
}

/* null: none; 0 is 0. */
static bool to_limit(JSContext *js, JSValueConst value, uint32_t *out) {
  *out = SCRIPT_NO_LIMIT;
  return JS_IsNull(value) || JS_IsUndefined(value) || to_number(js, value, SCRIPT_NO_LIMIT - 1, out);
}

/* null: the request's own; 0: the most likely token. */
static bool to_temperature(JSContext *js, JSValueConst value, float *out) {
  double number;
  *out = 0;
  if (JS_IsNull(value) || JS_IsUndefined(value)) return true;
  if (JS_ToFloat64(js, &number, value) != 0) return false;
  if (!(number >= 0 && number < 1e30)) {
    JS_ThrowRangeError(js, "a temperature is 0 (the most likely token) or more");
    return false;
  }
  *out = number == 0 ? SCRIPT_GREEDY : (float)number;
  return true;
}

/* Token ids of an array, or of a text, which is tokenized. They are `*keep`'s, which is to be freed. */
static bool to_tokens(JSContext *js, JSValueConst value, script_tokens *tokens, uint32_t **keep) {
  *keep = NULL;
  if (JS_IsString(value)) {
    const script_text text = to_text(js, value);
    if (text.data == NULL) return false;
    const script_error error = script_tokenize(text, tokens);
    JS_FreeCString(js, text.data);
    if (error != NULL) raise(js, error);
    return error == NULL;
  }
  int64_t length;
  if (!JS_IsArray(value)) {
    JS_ThrowTypeError(js, "a text, or an array of tokens, is needed");
    return false;
  }
  if (JS_GetLength(js, value, &length) != 0) return false;
  uint32_t *const copy = js_malloc(js, ((size_t)length + 1) * sizeof *copy);
  if (copy == NULL) return false;
  for (int64_t i = 0; i < length; i++) {
    const JSValue item = JS_GetPropertyUint32(js, value, (uint32_t)i);
    const bool well = to_number(js, item, script_vocabulary_size() - 1, &copy[i]);
    JS_FreeValue(js, item);
    if (!well) {
      js_free(js, copy);
      return false;
    }
  }
  *keep = copy;
  *tokens = (script_tokens){copy, (size_t)length};
  return true;
}

/* The words of a mask (a Uint8Array); NULL for null. False: it is none. */
static bool to_mask(JSContext *js, JSValueConst value, uint32_t **mask) {
  size_t size;
  *mask = NULL;
  if (JS_IsNull(value) || JS_IsUndefined(value)) return true;
  *mask = (uint32_t *)(void *)JS_GetUint8Array(js, &size, value);
  if (*mask == NULL) return false;
  if (size == script_mask_words() * sizeof(uint32_t)) return true;
  JS_ThrowTypeError(js, "a mask has one bit for every token of the vocabulary");
  return false;
}

static JSValue from_text(JSContext *js, script_text text) { return JS_NewStringLen(js, text.data, text.size); }

static JSValue from_tokens(JSContext *js, script_tokens tokens) {
  const JSValue array = JS_NewArray(js);
  for (size_t i = 0; i < tokens.size; i++)
    JS_SetPropertyUint32(js, array, (uint32_t)i, JS_NewUint32(js, tokens.data[i]));
  return array;
}

static JSValue from_logprob(JSContext *js, float value) { return isnan(value) ? JS_NULL : JS_NewFloat64(js, (double)value); }

static JSValue from_top(JSContext *js, const script_top *top, size_t count) {
  const JSValue array = JS_NewArray(js);
  for (size_t i = 0; i < count; i++) {
    const JSValue one = JS_NewObject(js);
    JS_SetPropertyStr(js, one, "token", JS_NewUint32(js, top[i].token));
    JS_SetPropertyStr(js, one, "logprob", JS_NewFloat64(js, (double)top[i].logprob));
    JS_SetPropertyUint32(js, array, (uint32_t)i, one);
  }
  return array;
}

static JSValue from_scored(JSContext *js, const script_scored *token, const script_top *tops) {
  const JSValue one = JS_NewObject(js);
  JS_SetPropertyStr(js, one, "token", JS_NewUint32(js, token->token));
  JS_SetPropertyStr(js, one, "logprob", from_logprob(js, token->logprob));
  JS_SetPropertyStr(js, one, "allowedMass", from_logprob(js, token->allowed_mass));
  JS_SetPropertyStr(js, one, "top", from_top(js, tops + token->first_top, token->num_top));
  return one;
}

/* ---- the sequence ---- */

FUNCTION(force) {
  UNUSED;
  script_tokens tokens;
  uint32_t *keep;
  if (!to_tokens(js, of[0], &tokens, &keep)) return JS_EXCEPTION;
  script_force(tokens);
  js_free(js, keep);
  return JS_UNDEFINED;
}

FUNCTION(rewindTo) {
  UNUSED;
  uint32_t size;
  if (!to_number(js, of[0], UINT32_MAX, &size)) return JS_EXCEPTION;
  RAISE_IF(script_rewind(size));
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

/* The tokens from one place to another. */
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

/* Certain tokens as an array, a mask as a Uint8Array, or null: nothing may come. */
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

/* An array of texts as the core takes them; to be given back by free_texts. */
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

/* pattern, maxTokens, maxBytes, temperature, logprobs, top, stops, includeStop, leave */
FUNCTION(beginGeneration) {
  UNUSED;
  script_generation what = {.logprobs = JS_ToBool(js, of[4]) > 0,
                            .include_stop = JS_ToBool(js, of[7]) > 0,
                            .leave = JS_ToBool(js, of[8]) > 0};
  script_text stops[MOST_NAMES];
  if (!to_number(js, of[0], UINT32_MAX, &what.pattern) || !to_limit(js, of[1], &what.max_tokens) ||
      !to_limit(js, of[2], &what.max_bytes) || !to_temperature(js, of[3], &what.temperature) ||
      !to_number(js, of[5], UINT32_MAX, &what.top))
    return JS_EXCEPTION;
  const bool well = to_texts(js, of[6], stops, &what.num_stops);
  what.stops = stops;
  const script_error error = well ? script_begin_generation(&what) : NULL;
  free_texts(js, stops, what.num_stops);
  return well ? awaited(js, error) : JS_EXCEPTION;
}

static const char *const finishes[] = {"complete", "end", "stop", "max_tokens", "max_bytes"};

/* {text, finish, details} */
FUNCTION(generated) {
  UNUSED;
  script_generated result;
  RAISE_IF(script_generation_result(&result));
  const JSValue all = JS_NewObject(js), tokens = JS_NewArray(js);
  for (size_t i = 0; i < result.num_tokens; i++)
    JS_SetPropertyUint32(js, tokens, (uint32_t)i, from_scored(js, &result.tokens[i], result.tops));
  JS_SetPropertyStr(js, all, "text", from_text(js, result.text));
  JS_SetPropertyStr(js, all, "finish", JS_NewString(js, finishes[result.finish]));
  JS_SetPropertyStr(js, all, "details", tokens);
  return all;
}

FUNCTION(generatedText) {
  UNUSED;
  script_generated result;
  RAISE_IF(script_generation_result(&result));
  return from_text(js, result.text);
}

/* mask or null, temperature, top */
FUNCTION(beginSample) {
  UNUSED;
  uint32_t *mask, top;
  float temperature;
  if (!to_mask(js, of[0], &mask) || !to_temperature(js, of[1], &temperature) || !to_number(js, of[2], UINT32_MAX, &top))
    return JS_EXCEPTION;
  return awaited(js, script_begin_sample(mask, temperature, top));
}

FUNCTION(sampled) {
  UNUSED;
  script_generated result;
  RAISE_IF(script_sample_result(&result));
  return from_scored(js, result.tokens, result.tops);
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

FUNCTION(beginWait) {
  UNUSED;
  script_text names[MOST_NAMES];
  size_t number;
  const bool well = to_texts(js, of[0], names, &number);
  if (well) script_begin_wait(names, number);
  free_texts(js, names, number);
  return well ? awaited(js, NULL) : JS_EXCEPTION;
}

FUNCTION(waited) {
  UNUSED;
  RAISE_IF(script_wait_result());
  return JS_UNDEFINED;
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
  JS_SetPropertyStr(js, all, "top", from_top(js, step.top, step.num_top));
  JS_SetPropertyStr(js, all, "forkGroup", from_tokens(js, step.group));
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

/* mask or null, temperature, top */
FUNCTION(answerSample) {
  UNUSED;
  uint32_t *mask, top;
  float temperature;
  if (!to_mask(js, of[0], &mask) || !to_temperature(js, of[1], &temperature) || !to_number(js, of[2], UINT32_MAX, &top))
    return JS_EXCEPTION;
  RAISE_IF(script_answer_sample(mask, temperature, top));
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

/* ---- the host ---- */

FUNCTION(vocabularySize) {
  UNUSED;
  return JS_NewUint32(js, script_vocabulary_size());
}

FUNCTION(endTokens) {
  UNUSED;
  return from_tokens(js, script_end_tokens());
}

FUNCTION(tokenBytes) {
  UNUSED;
  uint32_t token;
  if (!to_number(js, of[0], script_vocabulary_size() - 1, &token)) return JS_EXCEPTION;
  const script_text bytes = script_token_bytes(token);
  return JS_NewUint8ArrayCopy(js, (const uint8_t *)bytes.data, bytes.size);
}

FUNCTION(isSpecial) {
  UNUSED;
  uint32_t token;
  if (!to_number(js, of[0], script_vocabulary_size() - 1, &token)) return JS_EXCEPTION;
  return JS_NewBool(js, script_token_is_special(token));
}

FUNCTION(tokenize) {
  UNUSED;
  script_tokens tokens;
  const script_text text = to_text(js, of[0]);
  if (text.data == NULL) return JS_EXCEPTION;
  const script_error error = script_tokenize(text, &tokens);
  JS_FreeCString(js, text.data);
  RAISE_IF(error);
  return from_tokens(js, tokens);
}

FUNCTION(detokenize) {
  UNUSED;
  script_tokens tokens;
  uint32_t *keep;
  script_text text;
  if (!to_tokens(js, of[0], &tokens, &keep)) return JS_EXCEPTION;
  const script_error error = script_detokenize(tokens, &text);
  js_free(js, keep);
  RAISE_IF(error);
  return from_text(js, text);
}

FUNCTION(capability) {
  UNUSED;
  bool known;
  const script_text name = to_text(js, of[0]);
  if (name.data == NULL) return JS_EXCEPTION;
  const uint32_t value = script_capability(name, &known);
  if (!known) JS_ThrowRangeError(js, "no capability is called %s", name.data);
  JS_FreeCString(js, name.data);
  return known ? JS_NewUint32(js, value) : JS_EXCEPTION;
}

/* {value, version}, or null */
FUNCTION(getVariable) {
  UNUSED;
  script_text value;
  uint32_t version;
  const script_text name = to_text(js, of[0]);
  if (name.data == NULL) return JS_EXCEPTION;
  const bool found = script_get_variable(name, &value, &version);
  JS_FreeCString(js, name.data);
  if (!found) return JS_NULL;
  const JSValue both = JS_NewObject(js);
  JS_SetPropertyStr(js, both, "value", from_text(js, value));
  JS_SetPropertyStr(js, both, "version", JS_NewUint32(js, version));
  return both;
}

/* name, value, append, version or null */
FUNCTION(setVariable) {
  UNUSED;
  uint32_t when, version;
  if (!to_limit(js, of[3], &when)) return JS_EXCEPTION;
  const script_text name = to_text(js, of[0]);
  if (name.data == NULL) return JS_EXCEPTION;
  const script_text value = to_text(js, of[1]);
  script_error error = NULL;
  if (value.data != NULL) error = script_set_variable(name, value, JS_ToBool(js, of[2]) > 0, when, &version);
  JS_FreeCString(js, name.data);
  if (value.data == NULL) return JS_EXCEPTION;
  JS_FreeCString(js, value.data);
  RAISE_IF(error);
  return JS_NewUint32(js, version);
}

FUNCTION(print) {
  UNUSED;
  const script_text text = to_text(js, of[0]);
  if (text.data == NULL) return JS_EXCEPTION;
  script_log(text);
  JS_FreeCString(js, text.data);
  return JS_UNDEFINED;
}

FUNCTION(stop) {
  UNUSED;
  script_stop();
}

FUNCTION(fail) {
  UNUSED;
  const script_text text = to_text(js, of[0]);
  if (text.data == NULL) return JS_EXCEPTION;
  script_fail(text);
}

/* ---- masks: Uint8Arrays of one bit a token ---- */

FUNCTION(maskBytes) {
  UNUSED;
  return JS_NewUint32(js, (uint32_t)(script_mask_words() * sizeof(uint32_t)));
}

FUNCTION(maskAll) {
  UNUSED;
  uint32_t *mask;
  if (!to_mask(js, of[0], &mask) || mask == NULL) return JS_EXCEPTION;
  script_mask_all(mask);
  return JS_UNDEFINED;
}

FUNCTION(maskText) {
  UNUSED;
  uint32_t *mask;
  if (!to_mask(js, of[0], &mask) || mask == NULL) return JS_EXCEPTION;
  script_mask_text(mask);
  return JS_UNDEFINED;
}

/* mask, tokens, allow or forbid */
FUNCTION(maskPut) {
  UNUSED;
  uint32_t *mask, *keep;
  script_tokens tokens;
  if (!to_mask(js, of[0], &mask) || mask == NULL || !to_tokens(js, of[1], &tokens, &keep)) return JS_EXCEPTION;
  const bool allow = JS_ToBool(js, of[2]) > 0;
  for (size_t i = 0; i < tokens.size; i++) {
    const uint32_t bit = 1u << (tokens.data[i] & 31), word = tokens.data[i] >> 5;
    mask[word] = allow ? mask[word] | bit : mask[word] & ~bit;
  }
  js_free(js, keep);
  return JS_UNDEFINED;
}

FUNCTION(maskTokens) {
  UNUSED;
  uint32_t *mask, number = 0;
  if (!to_mask(js, of[0], &mask) || mask == NULL) return JS_EXCEPTION;
  const JSValue array = JS_NewArray(js);
  for (uint32_t i = 0; i < script_mask_words(); i++)
    for (uint32_t left = mask[i]; left != 0; left &= left - 1)
      JS_SetPropertyUint32(js, array, number++, JS_NewUint32(js, i * 32 + (uint32_t)__builtin_ctz(left)));
  return array;
}

#define ENTRY(name, arguments) JS_CFUNC_DEF(#name, arguments, name)

static const JSCFunctionListEntry entries[] = {
    ENTRY(force, 1),          ENTRY(rewindTo, 1),     ENTRY(size, 0),         ENTRY(promptSize, 0),
    ENTRY(tokensBetween, 2),  ENTRY(textBetween, 2),  ENTRY(mark, 0),         ENTRY(place, 1),
    ENTRY(pattern, 2),        ENTRY(follow, 1),       ENTRY(unfollow, 1),     ENTRY(followAppend, 2),
    ENTRY(followEnded, 1),    ENTRY(followMayEnd, 1), ENTRY(followNext, 1),   ENTRY(beginGeneration, 9),
    ENTRY(generated, 0),      ENTRY(generatedText, 0), ENTRY(beginSample, 3), ENTRY(sampled, 0),
    ENTRY(beginFork, 1),      ENTRY(forked, 0),       ENTRY(beginWait, 1),    ENTRY(waited, 0),
    ENTRY(beginStep, 0),      ENTRY(presentStep, 0),  ENTRY(answerStop, 0),   ENTRY(answerSuspend, 0),
    ENTRY(answerFork, 1),     ENTRY(answerSample, 3), ENTRY(answerSplice, 2), ENTRY(vocabularySize, 0),
    ENTRY(endTokens, 0),      ENTRY(tokenBytes, 1),   ENTRY(isSpecial, 1),    ENTRY(tokenize, 1),
    ENTRY(detokenize, 1),     ENTRY(capability, 1),   ENTRY(getVariable, 1),  ENTRY(setVariable, 4),
    ENTRY(print, 1),          ENTRY(stop, 0),         ENTRY(fail, 1),         ENTRY(maskBytes, 0),
    ENTRY(maskAll, 1),        ENTRY(maskText, 1),     ENTRY(maskPut, 3),      ENTRY(maskTokens, 1),
};
#define COUNT ((int)(sizeof entries / sizeof *entries))

static int fill(JSContext *in, JSModuleDef *module) { return JS_SetModuleExportList(in, module, entries, COUNT); }

JSModuleDef *aici_native_module(JSContext *in) {
  JSModuleDef *const module = JS_NewCModule(in, "_aici", fill);
  if (module != NULL) JS_AddModuleExportList(in, module, entries, COUNT);
  return module;
}
