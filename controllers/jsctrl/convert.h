/* convert.h - between the values of JavaScript and what the core takes and gives. */
#ifndef AICI_JSCTRL_CONVERT_H
#define AICI_JSCTRL_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "quickjs.h"
#include "script.h"

/* A function for scripts, and what it may leave unused. */
#define FUNCTION(name) static JSValue name(JSContext *js, JSValueConst self, int count, JSValueConst *of)
#define UNUSED ((void)js, (void)self, (void)count, (void)of)

#define RAISE_IF(error)                                   \
  do {                                                    \
    const script_error problem = (error);                 \
    if (problem != NULL) return raise_error(js, problem); \
  } while (0)

JSValue raise_error(JSContext *js, script_error error);
/* A text, to be given back by JS_FreeCString(js, text.data); data is NULL if it is none. */
script_text to_text(JSContext *js, JSValueConst value);
bool to_number(JSContext *js, JSValueConst value, uint32_t most, uint32_t *out);
/* null: none; 0 is 0. */
bool to_limit(JSContext *js, JSValueConst value, uint32_t *out);
/* null: the request's own; 0: the most likely token. */
bool to_temperature(JSContext *js, JSValueConst value, float *out);
/* Token ids of an array, or of a text, which is tokenized. They are `*keep`'s, which is to be freed. */
bool to_tokens(JSContext *js, JSValueConst value, script_tokens *tokens, uint32_t **keep);
/* The words of a mask (a Uint8Array); NULL for null. False: it is none. */
bool to_mask(JSContext *js, JSValueConst value, uint32_t **mask);
JSValue from_text(JSContext *js, script_text text);
JSValue from_tokens(JSContext *js, script_tokens tokens);
JSValue from_logprob(JSContext *js, float value);
JSValue from_top(JSContext *js, const script_top *top, size_t count);
JSValue from_scored(JSContext *js, const script_scored *token, const script_top *tops);

#endif /* AICI_JSCTRL_CONVERT_H */
