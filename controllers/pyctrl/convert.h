/* convert.h - between the objects of Python and what the core takes and gives. */
#ifndef AICI_PYCTRL_CONVERT_H
#define AICI_PYCTRL_CONVERT_H

#include "py/obj.h"
#include "script.h"

/* A function for scripts, an entry of a module's table, and what a function may leave unused. */
#define FUNCTION(name, least, most) \
  static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(name##_obj, least, most, name)
#define ENTRY(name) {MP_ROM_QSTR(MP_QSTR_##name), MP_ROM_PTR(&name##_obj)}
#define UNUSED(count, of) ((void)(count), (void)(of))

/* Raises aici.Error if there is one. */
void raise_if(script_error error);
/* The bytes of a str, bytes or bytearray; raises TypeError. */
script_text to_text(mp_obj_t object);
/* Token ids: of a list or tuple of numbers, which are checked, or of a text, which is tokenized. */
script_tokens to_tokens(mp_obj_t object);
mp_obj_t from_tokens(script_tokens tokens);
/* A str; what is not UTF-8 becomes U+FFFD. */
mp_obj_t from_text(script_text text);
mp_obj_t from_bytes(script_text text);
/* A float, or None for NaN. */
mp_obj_t from_logprob(float value);
/* [(token, logprob), ...] */
mp_obj_t from_top(const script_top *top, size_t count);
/* The words of a mask: of a bytearray that has as many, or NULL for None. */
uint32_t *to_mask(mp_obj_t object);

extern const mp_obj_type_t aici_error_type;

#endif /* AICI_PYCTRL_CONVERT_H */
