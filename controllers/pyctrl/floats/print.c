/* Floats as text, as CPython writes them. MicroPython's own conversion is inexact in the last digits and cuts long
 * numbers off. The printf of libc is exact: it computes all digits that it prints and rounds half to even. */
#pragma clang diagnostic ignored "-Weverything"
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#define mp_print_float unused_print_float
#include "py/mpprint.c"
#undef mp_print_float

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "floats.h"

/* A decimal number: digits[0].digits[1]... * 10^exponent, without zeros at the end. */
typedef struct decimal {
  char *digits;
  int count, exponent;
} decimal;

/* Bytes for a number with `digits` digits in the format of %e. */
#define ROOM(digits) ((size_t)(digits) + 10)

static double value_of(decimal of) {
  char text[ROOM(17)];
  snprintf(text, sizeof text, "%.*se%d", of.count, of.digits, of.exponent - of.count + 1);
  return strtod(text, NULL);
}

/* Rounds a finite number >= 0 to `count` digits. `text` has ROOM(count) bytes, in which the digits stay. */
static decimal to_decimal(double value, int count, char *text) {
  snprintf(text, ROOM(count), "%.*e", count - 1, value);
  const int exponent = atoi(strchr(text, 'e') + 1);
  if (count > 1) memmove(text + 1, text + 2, (size_t)count - 1); /* the point */
  while (count > 1 && text[count - 1] == '0') count--;
  return (decimal){text, count, exponent};
}

/* Adds one to the last digit. */
static decimal next_decimal(decimal of) {
  while (of.count > 0 && of.digits[of.count - 1] == '9') of.count--;
  if (of.count == 0) {
    of.digits[0] = '0';
    of.count = 1;
    of.exponent++;
  }
  of.digits[of.count - 1]++;
  return of;
}

/* Returns the shortest decimal that reads as this number, and the nearest one of these. */
static decimal shortest(double value, char text[static ROOM(17)]) {
  /* 15 digits of a normal number are always those of a shorter decimal, if there is one */
  for (int count = value < DBL_MIN ? 1 : 15; count < 17; count++) {
    decimal found = to_decimal(value, count, text);
    if (value_of(found) == value) return found;
    /* Below a power of two, numbers are closer than above. So a decimal above can read as this number though a
     * nearer one below does not. */
    int binary;
    if (frexp(value, &binary) != 0.5) continue;
    memset(text + found.count, '0', (size_t)(count - found.count));
    found.count = count;
    found = next_decimal(found);
    if (value_of(found) == value) return found;
  }
  return to_decimal(value, 17, text);
}

/* Writes a decimal; in exponential notation if its exponent is below -4, or `limit` or more. */
static void write_decimal(vstr_t *out, decimal of, int limit) {
  if (of.exponent < -4 || of.exponent >= limit) {
    vstr_add_byte(out, (byte)of.digits[0]);
    if (of.count > 1) vstr_add_byte(out, '.');
    vstr_add_strn(out, of.digits + 1, (size_t)of.count - 1);
    vstr_printf(out, "e%c%02d", of.exponent < 0 ? '-' : '+', abs(of.exponent));
    return;
  }
  if (of.exponent < 0) vstr_add_strn(out, "0.000", (size_t)(1 - of.exponent));
  for (int at = 0; at < of.count || at <= of.exponent; at++) {
    if (at > 0 && at == of.exponent + 1) vstr_add_byte(out, '.');
    vstr_add_byte(out, at < of.count ? (byte)of.digits[at] : '0');
  }
}

/* Writes a number >= 0, infinity or NaN as repr() does, but without ".0". */
static void write_shortest(vstr_t *out, double value) {
  char text[ROOM(17)];
  if (isnan(value)) {
    vstr_add_str(out, "nan");
  } else if (isinf(value)) {
    vstr_add_str(out, "inf");
  } else {
    write_decimal(out, shortest(value, text), 16);
  }
}

/* Writes a number >= 0, infinity or NaN in a format of printf. */
static void write_format(vstr_t *out, double value, char format, bool alternate, int precision) {
  const char pattern[] = {'%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : format,
                          alternate ? format : '\0', '\0'};
  const int size = snprintf(NULL, 0, pattern, precision, value);
  if (size < 0) mp_raise_ValueError(MP_ERROR_TEXT("the precision is too big"));
  snprintf(vstr_add_len(out, (size_t)size + 1), (size_t)size + 1, pattern, precision, value);
  vstr_cut_tail_bytes(out, 1);
}

/* Writes a number >= 0, infinity or NaN as format() does for a specification without a type. */
static void write_without_type(vstr_t *out, double value, int precision) {
  const size_t from = out->len;
  if (precision < 0 || !isfinite(value)) {
    write_shortest(out, value);
  } else {
    if (precision == 0) precision = 1;
    char *const text = m_new(char, ROOM(precision));
    write_decimal(out, to_decimal(value, precision, text), precision - 1);
    m_del(char, text, ROOM(precision));
  }
  const char *const made = vstr_null_terminated_str(out) + from;
  if (isfinite(value) && strpbrk(made, ".e") == NULL) vstr_add_str(out, ".0");
}

/* Separates the thousands of the number in `out`. If `width` is not 0, adds zeros before it up to this length. */
static void add_commas(vstr_t *out, int width) {
  int digits = (int)strspn(vstr_null_terminated_str(out), "0123456789");
  if (digits == 0) return;
  while ((int)out->len + (digits - 1) / 3 < width) {
    vstr_ins_byte(out, 0, '0');
    digits++;
  }
  for (int at = digits - 3; at > 0; at -= 3) vstr_ins_byte(out, (size_t)at, ',');
}

static char sign_of(double value, char of_positive) {
  return signbit(value) && !isnan(value) ? '-' : of_positive;
}

/* MicroPython calls this for repr() alone: the precision that it asks for is ignored. */
int mp_format_float(mp_float_t value, char *text, size_t size, char format, int precision, char sign) {
  (void)format, (void)precision;
  vstr_t out;
  vstr_init_fixed_buf(&out, size, text);
  if (sign_of(value, sign) != '\0') vstr_add_byte(&out, (byte)sign_of(value, sign));
  write_shortest(&out, fabs(value));
  vstr_null_terminated_str(&out);
  return (int)out.len;
}

int mp_print_float(const mp_print_t *print, mp_float_t value, char format, int flags, char fill, int width,
                   int precision) {
  char sign = sign_of(value, flags & PF_FLAG_SHOW_SIGN ? '+' : flags & PF_FLAG_SPACE_SIGN ? ' ' : '\0');
  vstr_t out;
  vstr_init(&out, 32);
  if (flags & FLAG_WITHOUT_TYPE) {
    write_without_type(&out, fabs(value), precision);
  } else {
    write_format(&out, fabs(value), format, (flags & PF_FLAG_SHOW_PREFIX) != 0, precision < 0 ? 6 : precision);
  }
  if (flags & PF_FLAG_ADD_PERCENT) vstr_add_byte(&out, '%');
  const bool pads_after_sign = (flags & PF_FLAG_PAD_AFTER_SIGN) != 0;
  if (flags & PF_FLAG_SHOW_COMMA) add_commas(&out, pads_after_sign && fill == '0' ? width - (sign != '\0') : 0);
  int written = 0;
  if (sign != '\0' && pads_after_sign) {
    written += mp_print_strn(print, &sign, 1, 0, 0, 1);
    width--;
  } else if (sign != '\0') {
    vstr_ins_byte(&out, 0, (byte)sign);
  }
  written += mp_print_strn(print, out.buf, out.len, flags, fill, width);
  vstr_clear(&out);
  return written;
}

#pragma clang attribute pop
