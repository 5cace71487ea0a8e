/* convert.h - conversions between JavaScript values and those of the core. */
#ifndef AICI_JSCTRL_CONVERT_H
#define AICI_JSCTRL_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "quickjs.h"
#include "script.h"

/* Defines a function for scripts, with parameters that it may leave unused. */
#define FUNCTION(name) static JSValue name(JSContext *js, JSValueConst self, int count, JSValueConst *of)
#define UNUSED ((void)js, (void)self, (void)count, (void)of)

#define RAISE_IF(error)                                   \
  do {                                                    \
    const script_error problem = (error);                 \
    if (problem != NULL) return raise_error(js, problem); \
  } while (0)

JSValue raise_error(JSContext *js, script_error error);
/* Converts a text; free it with JS_FreeCString(js, text.data). data is NULL if the value is not a text. */
script_text to_text(JSContext *js, JSValueConst value);
bool to_number(JSContext *js, JSValueConst value, uint32_t most, uint32_t *out);
/* null: none; 0 is 0. */
bool to_limit(JSContext *js, JSValueConst value, uint32_t *out);
/* An array: temperature, topP, topK, minP, typicalP, topNSigma (null: the request's own), topLogprobs, favoured mask or
 * null, bias, biases or null: the bytes of float64 numbers, a token and its bias in turn; and the prediction or null: the
 * bytes of tokens. Free options->biases. */
bool to_options(JSContext *js, JSValueConst value, script_options *options);
/* Converts an array of token ids, or a text, which is tokenized. `*keep` owns the result; free it. */
bool to_tokens(JSContext *js, JSValueConst value, script_tokens *tokens, uint32_t **keep);
/* Converts a mask (a Uint8Array) to words; NULL for null. Returns false if the value is not a mask. */
bool to_mask(JSContext *js, JSValueConst value, uint32_t **mask);
JSValue from_text(JSContext *js, script_text text);
JSValue from_tokens(JSContext *js, script_tokens tokens);
JSValue from_logprob(JSContext *js, float value);
JSValue from_top(JSContext *js, const script_top *top, size_t count);
JSValue from_scored(JSContext *js, const script_scored *token, const script_top *tops);

#endif /* AICI_JSCTRL_CONVERT_H */
