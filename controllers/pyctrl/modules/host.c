/* The module _host: tokens, variables and the engine, as in script.h; and sets of tokens. */
#include "../convert.h"
#include "../output.h"
#include "py/objlist.h"
#include "py/runtime.h"
#include "script.h"

static mp_obj_t vocabulary_size(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  return mp_obj_new_int_from_uint(script_vocabulary_size());
}
FUNCTION(vocabulary_size, 0, 0);

static mp_obj_t eos_tokens(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  return from_tokens(script_eos_tokens());
}
FUNCTION(eos_tokens, 0, 0);

/* Returns the bytes of a token, and whether it is special. */
static mp_obj_t token(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const mp_int_t number = mp_obj_get_int(of[0]);
  if (number < 0 || (mp_uint_t)number >= script_vocabulary_size())
    mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("there is no token %d: the vocabulary has %d"), (int)number,
                      (int)script_vocabulary_size());
  mp_obj_t both[] = {from_bytes(script_token_bytes((uint32_t)number)),
                     mp_obj_new_bool(script_token_is_special((uint32_t)number))};
  return mp_obj_new_tuple(2, both);
}
FUNCTION(token, 1, 1);

static mp_obj_t tokenize(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_tokens tokens;
  raise_if(script_tokenize(to_text(of[0]), &tokens));
  return from_tokens(tokens);
}
FUNCTION(tokenize, 1, 1);

static mp_obj_t detokenize(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_text text;
  raise_if(script_detokenize(to_tokens(of[0]), &text));
  return from_bytes(text);
}
FUNCTION(detokenize, 1, 1);

static mp_obj_t capability(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  bool known;
  const uint32_t value = script_capability(to_text(of[0]), &known);
  if (!known)
    mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("no capability is called %s"), mp_obj_str_get_str(of[0]));
  return mp_obj_new_int_from_uint(value);
}
FUNCTION(capability, 1, 1);

/* (value, version), or None */
static mp_obj_t get_variable(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_text value;
  uint32_t version;
  if (!script_get_variable(to_text(of[0]), &value, &version)) return mp_const_none;
  mp_obj_t both[] = {from_text(value), mp_obj_new_int_from_uint(version)};
  return mp_obj_new_tuple(2, both);
}
FUNCTION(get_variable, 1, 1);

/* name, value, append, version or None */
static mp_obj_t set_variable(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t when = of[3] == mp_const_none ? SCRIPT_ANY_VERSION : (uint32_t)mp_obj_get_int(of[3]);
  uint32_t version;
  raise_if(script_set_variable(to_text(of[0]), to_text(of[1]), mp_obj_is_true(of[2]), when, &version));
  return mp_obj_new_int_from_uint(version);
}
FUNCTION(set_variable, 4, 4);

/* Returns the name of the variable that will have the answer. */
static mp_obj_t call(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_text result;
  raise_if(script_call(to_text(of[0]), to_text(of[1]), &result));
  return from_text(result);
}
FUNCTION(call, 2, 2);

static mp_obj_t stop(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  flush_output();
  script_stop();
  mp_raise_type(&mp_type_SystemExit);
}
FUNCTION(stop, 0, 0);

static mp_obj_t fail(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  flush_output();
  script_fail(to_text(of[0]));
}
FUNCTION(fail, 1, 1);

/* ---- masks: bytearrays with one bit per token ---- */

static mp_obj_t new_mask(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const size_t bytes = script_mask_words() * sizeof(uint32_t);
  return mp_obj_new_bytearray_by_ref(bytes, m_new0(byte, bytes));
}
FUNCTION(new_mask, 0, 0);

static mp_obj_t mask_all(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_mask_all(to_mask(of[0]));
  return mp_const_none;
}
FUNCTION(mask_all, 1, 1);

static mp_obj_t mask_text(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  script_mask_text(to_mask(of[0]));
  return mp_const_none;
}
FUNCTION(mask_text, 1, 1);

/* mask, tokens, allow or forbid */
static mp_obj_t mask_put(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const script_tokens tokens = to_tokens(of[1]);
  uint32_t *const mask = to_mask(of[0]);
  const bool allow = mp_obj_is_true(of[2]);
  for (size_t i = 0; i < tokens.size; i++) {
    const uint32_t bit = 1u << (tokens.data[i] & 31);
    if (allow)
      mask[tokens.data[i] >> 5] |= bit;
    else
      mask[tokens.data[i] >> 5] &= ~bit;
  }
  return mp_const_none;
}
FUNCTION(mask_put, 3, 3);

static mp_obj_t mask_has(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t number = (uint32_t)mp_obj_get_int(of[1]);
  return mp_obj_new_bool(number < script_vocabulary_size() && (to_mask(of[0])[number >> 5] >> (number & 31) & 1));
}
FUNCTION(mask_has, 2, 2);

static mp_obj_t mask_count(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t *const mask = to_mask(of[0]);
  uint32_t count = 0;
  for (uint32_t i = 0; i < script_mask_words(); i++) count += (uint32_t)__builtin_popcount(mask[i]);
  return mp_obj_new_int_from_uint(count);
}
FUNCTION(mask_count, 1, 1);

/* Combines the second mask into the first: '|', '&', '-'. */
static mp_obj_t mask_combine(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  uint32_t *const mask = to_mask(of[0]);
  const uint32_t *const other = to_mask(of[1]);
  const char how = mp_obj_str_get_str(of[2])[0];
  for (uint32_t i = 0; i < script_mask_words(); i++)
    mask[i] = how == '|' ? mask[i] | other[i] : how == '&' ? mask[i] & other[i] : mask[i] & ~other[i];
  return mp_const_none;
}
FUNCTION(mask_combine, 3, 3);

static mp_obj_t mask_tokens(size_t n, const mp_obj_t *of) {
  UNUSED(n, of);
  const uint32_t *const mask = to_mask(of[0]);
  const mp_obj_t list = mp_obj_new_list(0, NULL);
  for (uint32_t i = 0; i < script_mask_words(); i++)
    for (uint32_t left = mask[i]; left != 0; left &= left - 1)
      mp_obj_list_append(list, mp_obj_new_int_from_uint(i * 32 + (uint32_t)__builtin_ctz(left)));
  return list;
}
FUNCTION(mask_tokens, 1, 1);

static const mp_rom_map_elem_t entries[] = {
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR__host)},
    ENTRY(vocabulary_size), ENTRY(eos_tokens), ENTRY(token), ENTRY(tokenize), ENTRY(detokenize), ENTRY(capability),
    ENTRY(get_variable), ENTRY(set_variable), ENTRY(call), ENTRY(stop), ENTRY(fail), ENTRY(new_mask), ENTRY(mask_all),
    ENTRY(mask_text), ENTRY(mask_put), ENTRY(mask_has), ENTRY(mask_count), ENTRY(mask_combine), ENTRY(mask_tokens),
};
static MP_DEFINE_CONST_DICT(globals, entries);

const mp_obj_module_t host_module = {.base = {&mp_type_module}, .globals = (mp_obj_dict_t *)&globals};
MP_REGISTER_MODULE(MP_QSTR__host, host_module);
