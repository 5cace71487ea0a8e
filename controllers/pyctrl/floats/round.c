/* The built-in functions, with round() as in CPython: it rounds the exact decimal value, half to even. MicroPython's
 * round(2.675, 2) and round(1e300, 20) would be wrong. */
#pragma clang diagnostic ignored "-Weverything"
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#include <float.h>
#include <stdlib.h>

#include "py/obj.h"

static mp_obj_t mp_builtin_round(size_t count, const mp_obj_t *of);

/* renames the definition, and not its use in the table, where no "(" follows */
#define mp_builtin_round(count, of) round_whole(count, of)
#include "py/modbuiltins.c"
#undef mp_builtin_round

/* The digits of a double before the point, and after it */
enum { MOST_BEFORE = DBL_MAX_10_EXP + 1, MOST_AFTER = 323 };

/* Rounds a finite number >= 0 to a multiple of 10^places. */
static double round_to_tens(double value, int places) {
  char text[MOST_BEFORE + 8];
  const int count = snprintf(text, sizeof text, "%.0f", floor(value)), kept = count - places;
  if (kept < 0) return 0;
  const bool is_odd = kept > 0 && (text[kept - 1] - '0') % 2 == 1;
  const char *const rest = text + kept;
  const bool is_half = rest[0] == '5' && strspn(rest + 1, "0") == (size_t)places - 1 && value == floor(value);
  const bool up = is_half ? is_odd : rest[0] >= '5';
  int at = kept;
  while (up && at > 0 && text[at - 1] == '9') at--; /* the carry */
  char made[MOST_BEFORE + 16] = "0";
  memcpy(made + 1, text, (size_t)at);
  if (up) made[at]++;
  snprintf(made + at + 1, sizeof made - (size_t)at - 1, "e%d", count - at);
  return strtod(made, NULL);
}

/* Rounds a finite number >= 0 to digits after the point. */
static double round_to_digits(double value, int digits) {
  char text[MOST_BEFORE + MOST_AFTER + 8];
  snprintf(text, sizeof text, "%.*f", digits, value);
  return strtod(text, NULL);
}

static mp_obj_t mp_builtin_round(size_t count, const mp_obj_t *of) {
  const bool to_whole = count == 1 || of[1] == mp_const_none;
  if (to_whole || mp_obj_is_int(of[0])) return round_whole(to_whole ? 1 : 2, of);
  const double value = mp_obj_get_float(of[0]);
  const mp_int_t digits = mp_obj_get_int(of[1]);
  if (!isfinite(value) || digits > MOST_AFTER) return mp_obj_new_float(value);
  double rounded = 0;
  if (digits >= 0) {
    rounded = round_to_digits(fabs(value), digits);
  } else if (digits >= -MOST_BEFORE) {
    rounded = round_to_tens(fabs(value), -digits);
  }
  if (isinf(rounded)) mp_raise_msg(&mp_type_OverflowError, MP_ERROR_TEXT("rounded value too large to represent"));
  return mp_obj_new_float(copysign(rounded, value));
}

#pragma clang attribute pop
