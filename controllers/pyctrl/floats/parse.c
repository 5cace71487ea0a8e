/* Text as floats, as CPython reads it: the nearest float, whatever the number of digits. MicroPython would compute with
 * a float while it reads, and each step rounds. */
#pragma clang diagnostic ignored "-Weverything"
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#include "py/parsenum.h"
#define mp_parse_num_decimal unused_parse_num_decimal
#include "py/parsenum.c"
#undef mp_parse_num_decimal

#include <string.h>

#include "py/unicode.h"

/* A text that is being read. */
typedef struct source {
  const char *at, *end;
} source;

static char peek(const source *from) { return from->at < from->end ? *from->at : '\0'; }

static bool accept(source *from, const char *word) {
  const size_t size = strlen(word);
  if ((size_t)(from->end - from->at) < size) return false;
  for (size_t i = 0; i < size; i++)
    if ((from->at[i] | 0x20) != word[i]) return false;
  from->at += size;
  return true;
}

static bool accept_sign(source *from, char *sign) {
  *sign = peek(from);
  if (*sign != '+' && *sign != '-') return false;
  from->at++;
  return true;
}

/* Appends digits, which an underscore may separate; returns whether there is at least one. */
static bool read_digits(source *from, vstr_t *out) {
  const char *const begin = from->at;
  while (unichar_isdigit((unsigned char)peek(from)) ||
         (peek(from) == '_' && from->at > begin && from->at[-1] != '_' && from->at + 1 < from->end &&
          unichar_isdigit((unsigned char)from->at[1]))) {
    if (*from->at != '_') vstr_add_byte(out, (byte)*from->at);
    from->at++;
  }
  return from->at > begin;
}

/* Reads digits, a point and an exponent. */
static bool read_decimal(source *from, double *value) {
  vstr_t text;
  vstr_init(&text, 32);
  bool valid = read_digits(from, &text);
  if (peek(from) == '.') {
    from->at++;
    vstr_add_byte(&text, '.');
    valid |= read_digits(from, &text);
  }
  if (valid && accept(from, "e")) {
    vstr_add_byte(&text, 'e');
    char sign;
    if (accept_sign(from, &sign)) vstr_add_byte(&text, (byte)sign);
    valid = read_digits(from, &text);
  }
  if (valid) *value = strtod(vstr_null_terminated_str(&text), NULL);
  vstr_clear(&text);
  return valid;
}

/* Reads a number with an optional sign. */
static bool read_number(source *from, double *value) {
  char sign;
  accept_sign(from, &sign);
  if (accept(from, "infinity") || accept(from, "inf")) {
    *value = (double)INFINITY;
  } else if (accept(from, "nan")) {
    *value = (double)NAN;
  } else if (!read_decimal(from, value)) {
    return false;
  }
  if (sign == '-') *value = -*value;
  return true;
}

/* Reads the imaginary part that follows a real part, or precedes none: a number and j. "j" is 1j. */
static bool read_imaginary(source *from, double *value) {
  source ahead = *from;
  char sign;
  accept_sign(&ahead, &sign);
  double found = sign == '-' ? -1 : 1;
  if (!accept(&ahead, "j")) {
    ahead = *from;
    if (!read_number(&ahead, &found) || !accept(&ahead, "j")) return false;
  }
  *from = ahead;
  *value = found;
  return true;
}

mp_obj_t mp_parse_num_decimal(const char *text, size_t size, bool allow_imaginary, bool force_complex,
                              mp_lexer_t *lexer) {
  source from = {text, text + size};
  while (from.at < from.end && unichar_isspace((unsigned char)*from.at)) from.at++;
  while (from.at < from.end && unichar_isspace((unsigned char)from.end[-1])) from.end--;
  double real = 0, imaginary = 0;
  bool is_complex = allow_imaginary && read_imaginary(&from, &imaginary);
  bool valid = is_complex || read_number(&from, &real);
  if (valid && !is_complex && force_complex) {
    is_complex = true;
    if (from.at < from.end)
      valid = (peek(&from) == '+' || peek(&from) == '-') && read_imaginary(&from, &imaginary);
  }
  if (!valid || from.at < from.end)
    raise_exc(mp_obj_new_exception_msg(&mp_type_ValueError, MP_ERROR_TEXT("invalid syntax for number")), lexer);
  return is_complex ? mp_obj_new_complex(real, imaginary) : mp_obj_new_float(real);
}

#pragma clang attribute pop
