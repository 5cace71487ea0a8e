/* The module _host: tokens, variables, capabilities and the log of script.h, and sets of tokens. */
#include <unistd.h>

#include "context.h"
#include "convert.h"
#include "script.h"

FUNCTION(vocabularySize) {
  UNUSED;
  return JS_NewUint32(js, script_vocabulary_size());
}

FUNCTION(eosTokens) {
  UNUSED;
  return from_tokens(js, script_eos_tokens());
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

/* Returns the name of the variable that will have the answer. */
FUNCTION(call) {
  UNUSED;
  const script_text name = to_text(js, of[0]);
  if (name.data == NULL) return JS_EXCEPTION;
  const script_text arguments = to_text(js, of[1]);
  script_text result;
  script_error error = NULL;
  if (arguments.data != NULL) error = script_call(name, arguments, &result);
  JS_FreeCString(js, name.data);
  if (arguments.data == NULL) return JS_EXCEPTION;
  JS_FreeCString(js, arguments.data);
  RAISE_IF(error);
  return JS_NewStringLen(js, result.data, result.size);
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
  return JS_ThrowPlainError(js, "the sequence has been stopped");
}

FUNCTION(fail) {
  UNUSED;
  const script_text text = to_text(js, of[0]);
  if (text.data == NULL) return JS_EXCEPTION;
  script_fail(text);
}

/* Returns a random number from 0 to 1, from the host's random bits, which differ in each fork. */
FUNCTION(random) {
  UNUSED;
  uint64_t bits = 0;
  getentropy(&bits, sizeof bits);
  return JS_NewFloat64(js, (double)(bits >> 11) * 0x1p-53);
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
    ENTRY(vocabularySize, 0), ENTRY(eosTokens, 0), ENTRY(tokenBytes, 1), ENTRY(isSpecial, 1), ENTRY(tokenize, 1),
    ENTRY(detokenize, 1), ENTRY(capability, 1), ENTRY(getVariable, 1), ENTRY(setVariable, 4), ENTRY(call, 2), ENTRY(print, 1),
    ENTRY(stop, 0), ENTRY(fail, 1), ENTRY(random, 0), ENTRY(maskBytes, 0), ENTRY(maskAll, 1), ENTRY(maskText, 1),
    ENTRY(maskPut, 3), ENTRY(maskTokens, 1),
};
#define COUNT ((int)(sizeof entries / sizeof *entries))

static int fill(JSContext *in, JSModuleDef *module) { return JS_SetModuleExportList(in, module, entries, COUNT); }

JSModuleDef *aici_host_module(JSContext *in) {
  JSModuleDef *const module = JS_NewCModule(in, "_host", fill);
  if (module != NULL) JS_AddModuleExportList(in, module, entries, COUNT);
  return module;
}
