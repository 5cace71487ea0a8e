/* convert.h - conversions between Python objects and those of the core. */
#ifndef AICI_PYCTRL_CONVERT_H
#define AICI_PYCTRL_CONVERT_H

#include "py/obj.h"
#include "script.h"

/* Defines a function for scripts; an entry of a module's table; parameters that a function may leave unused. */
#define FUNCTION(name, least, most) \
  static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(name##_obj, least, most, name)
#define ENTRY(name) {MP_ROM_QSTR(MP_QSTR_##name), MP_ROM_PTR(&name##_obj)}
#define UNUSED(count, of) ((void)(count), (void)(of))

/* Raises aici.Error if `error` is not NULL. */
void raise_if(script_error error);
/* Returns the bytes of a str, bytes or bytearray; raises TypeError for other objects. */
script_text to_text(mp_obj_t object);
/* Converts a list or tuple of token ids, which are checked, or a text, which is tokenized. */
script_tokens to_tokens(mp_obj_t object);
mp_obj_t from_tokens(script_tokens tokens);
/* Makes a str; bytes that are not UTF-8 become U+FFFD. */
mp_obj_t from_text(script_text text);
mp_obj_t from_bytes(script_text text);
/* Makes a float, or None for NaN. */
mp_obj_t from_logprob(float value);
/* [(token, logprob), ...] */
mp_obj_t from_top(const script_top *top, size_t count);
/* Returns the words of a mask (a bytearray of the right size); NULL for None. */
uint32_t *to_mask(mp_obj_t object);

extern const mp_obj_type_t aici_error_type;

#endif /* AICI_PYCTRL_CONVERT_H */
