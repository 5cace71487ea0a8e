/* The methods of str. f"{x:8}" writes a float as str() does: MicroPython would take the missing type for "g". */
#pragma clang diagnostic ignored "-Weverything"
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#include "floats.h"
#include "py/obj.h"

/* The last character of a specification is a letter or "%" only if it is the type. */
static bool has_type(const vstr_t *specification) {
  const char last = specification->len == 0 ? '\0' : specification->buf[specification->len - 1];
  return unichar_isalpha((unsigned char)last) || last == '%';
}

/* MicroPython calls this in one place, where it reads a specification */
#define vstr_null_terminated_str(specification) \
  (flags |= has_type(specification) ? 0 : FLAG_WITHOUT_TYPE, (vstr_null_terminated_str)(specification))
#include "py/objstr.c"

#pragma clang attribute pop
