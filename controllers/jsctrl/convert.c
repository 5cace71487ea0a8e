#include "convert.h"

#include <math.h>

/* Maximum length of an array; above the length of any sequence or set. */
#define MOST_TOKENS (1 << 24)

JSValue raise_error(JSContext *js, script_error error) { return JS_ThrowPlainError(js, "%s", error); }

script_text to_text(JSContext *js, JSValueConst value) {
  script_text text = {0};
  if (!JS_IsString(value))
    JS_ThrowTypeError(js, "a text is needed");
  else
    text.data = JS_ToCStringLen(js, &text.size, value);
  return text;
}

bool to_number(JSContext *js, JSValueConst value, uint32_t most, uint32_t *out) {
  double number;
  if (JS_ToFloat64(js, &number, value) != 0) return false;
  if (!(number >= 0 && number <= most && number == floor(number))) {
    JS_ThrowRangeError(js, "a whole number from 0 to %u is needed", most);
    return false;
  }
  *out = (uint32_t)number;
  return true;
}

bool to_limit(JSContext *js, JSValueConst value, uint32_t *out) {
  *out = SCRIPT_NO_LIMIT;
  return JS_IsNull(value) || JS_IsUndefined(value) || to_number(js, value, SCRIPT_NO_LIMIT - 1, out);
}

/* null: NaN */
static bool to_option(JSContext *js, JSValueConst value, double *out) {
  *out = (double)NAN;
  if (JS_IsNull(value) || JS_IsUndefined(value)) return true;
  if (JS_ToFloat64(js, out, value) != 0) return false;
  if (!isnan(*out)) return true;
  JS_ThrowRangeError(js, "an option of sampling is not a number");
  return false;
}

static bool to_biases(JSContext *js, JSValueConst value, script_options *options) {
  if (JS_IsNull(value) || JS_IsUndefined(value)) return true;
  size_t size;
  const uint8_t *const bytes = JS_GetUint8Array(js, &size, value);
  if (bytes == NULL) return false;
  const size_t count = size / (2 * sizeof(double));
  script_bias *const biases = js_malloc(js, (count + 1) * sizeof *biases);
  if (biases == NULL) return false;
  for (size_t i = 0; i < count; i++) {
    double pair[2];
    memcpy(pair, bytes + i * sizeof pair, sizeof pair);
    const bool known = pair[0] >= 0 && pair[0] < UINT32_MAX && pair[0] == floor(pair[0]);
    biases[i] = (script_bias){known ? (uint32_t)pair[0] : UINT32_MAX, (float)pair[1]};
  }
  options->biases = biases;
  options->num_biases = count;
  return true;
}

static bool to_prediction(JSContext *js, JSValueConst value, script_options *options) {
  if (JS_IsNull(value) || JS_IsUndefined(value)) return true;
  size_t size;
  const uint8_t *const bytes = JS_GetUint8Array(js, &size, value);
  options->prediction = (script_tokens){(const uint32_t *)(const void *)bytes, size / sizeof(uint32_t)};
  return bytes != NULL;
}

bool to_options(JSContext *js, JSValueConst value, script_options *options) {
  double *const numbers[] = {&options->temperature, &options->top_p,       &options->top_k,
                             &options->min_p,       &options->typical_p, &options->top_n_sigma};
  JSValue of[11];
  for (uint32_t i = 0; i < 11; i++) of[i] = JS_GetPropertyUint32(js, value, i);
  bool well = true;
  for (uint32_t i = 0; i < 6; i++) well = well && to_option(js, of[i], numbers[i]);
  uint32_t *favoured = NULL;
  well = well && to_number(js, of[6], UINT32_MAX, &options->top_logprobs) && to_mask(js, of[7], &favoured) &&
         to_option(js, of[8], &options->bias) && to_biases(js, of[9], options) && to_prediction(js, of[10], options);
  options->favoured = favoured;
  for (uint32_t i = 0; i < 11; i++) JS_FreeValue(js, of[i]);  /* the script still has the arrays */
  const char *const flaw = well ? script_flaw(options) : NULL;
  if (flaw != NULL) JS_ThrowRangeError(js, "%s", flaw);
  return well && flaw == NULL;
}

bool to_tokens(JSContext *js, JSValueConst value, script_tokens *tokens, uint32_t **keep) {
  *keep = NULL;
  if (JS_IsString(value)) {
    const script_text text = to_text(js, value);
    if (text.data == NULL) return false;
    const script_error error = script_tokenize(text, tokens);
    JS_FreeCString(js, text.data);
    if (error != NULL) raise_error(js, error);
    return error == NULL;
  }
  int64_t length;
  if (!JS_IsArray(value)) {
    JS_ThrowTypeError(js, "a text, or an array of tokens, is needed");
    return false;
  }
  if (JS_GetLength(js, value, &length) != 0) return false;
  if (length > MOST_TOKENS) {
    JS_ThrowRangeError(js, "%lld tokens are more than any sequence has", (long long)length);
    return false;
  }
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

bool to_mask(JSContext *js, JSValueConst value, uint32_t **mask) {
  size_t size;
  *mask = NULL;
  if (JS_IsNull(value) || JS_IsUndefined(value)) return true;
  *mask = (uint32_t *)(void *)JS_GetUint8Array(js, &size, value);
  if (*mask == NULL) return false;
  if (size == script_mask_words() * sizeof(uint32_t)) return true;
  JS_ThrowTypeError(js, "a mask has one bit for every token of the vocabulary");
  return false;
}

JSValue from_text(JSContext *js, script_text text) { return JS_NewStringLen(js, text.data, text.size); }

JSValue from_tokens(JSContext *js, script_tokens tokens) {
  const JSValue array = JS_NewArray(js);
  for (size_t i = 0; i < tokens.size; i++)
    JS_SetPropertyUint32(js, array, (uint32_t)i, JS_NewUint32(js, tokens.data[i]));
  return array;
}

JSValue from_logprob(JSContext *js, float value) { return isnan(value) ? JS_NULL : JS_NewFloat64(js, (double)value); }

JSValue from_top(JSContext *js, const script_top *top, size_t count) {
  const JSValue array = JS_NewArray(js);
  for (size_t i = 0; i < count; i++) {
    const JSValue one = JS_NewObject(js);
    JS_SetPropertyStr(js, one, "token", JS_NewUint32(js, top[i].token));
    JS_SetPropertyStr(js, one, "logprob", JS_NewFloat64(js, (double)top[i].logprob));
    JS_SetPropertyUint32(js, array, (uint32_t)i, one);
  }
  return array;
}

JSValue from_scored(JSContext *js, const script_scored *token, const script_top *tops) {
  const JSValue one = JS_NewObject(js);
  JS_SetPropertyStr(js, one, "token", JS_NewUint32(js, token->token));
  JS_SetPropertyStr(js, one, "logprob", from_logprob(js, token->logprob));
  JS_SetPropertyStr(js, one, "allowedMass", from_logprob(js, token->allowed_mass));
  JS_SetPropertyStr(js, one, "topLogprobs", from_top(js, tops + token->first_top, token->num_top));
  return one;
}
