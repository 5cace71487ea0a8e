/* Replacements of re.sub: texts in which \1 and \g<name> stand for groups of the match. */
#include <string.h>

#include "py/objstr.h"
#include "py/runtime.h"
#include "objects.h"

__attribute__((noreturn)) static void fail(const char *what, int at) {
  mp_raise_msg_varg(&re_error_type, MP_ERROR_TEXT("%s in the replacement, byte %d"), what, at);
  __builtin_unreachable();
}

static void add_group(vstr_t *out, const pattern_object *pattern, mp_obj_t group, const subject *in,
                      const uint32_t *kept) {
  const uint32_t number = re_group_number(pattern, group);
  const uint32_t from = kept[2 * number], to = kept[2 * number + 1];
  if (from != RE_NONE && to != RE_NONE) vstr_add_strn(out, (const char *)in->data + from, to - from);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_octal(char c) { return c >= '0' && c <= '7'; }

/* Returns the group of \g<...>, given by a name or by digits. */
static mp_obj_t named_group(const pattern_object *pattern, const char *name, size_t size, int at) {
  if (size == 0) fail("missing group name", at);
  mp_int_t number = 0;
  for (size_t i = 0; i < size; i++) {
    if (!is_digit(name[i])) {
      const mp_obj_t key = mp_obj_new_str(name, size);
      if (mp_map_lookup(mp_obj_dict_get_map(pattern->names), key, MP_MAP_LOOKUP) == NULL)
        mp_raise_msg_varg(&mp_type_IndexError, MP_ERROR_TEXT("unknown group name '%s'"), mp_obj_str_get_str(key));
      return key;
    }
    if (number <= (mp_int_t)re_num_groups(pattern)) number = number * 10 + name[i] - '0';
  }
  if (number > (mp_int_t)re_num_groups(pattern)) fail("invalid group reference", at);
  return MP_OBJ_NEW_SMALL_INT(number);
}

void re_expand(vstr_t *out, const pattern_object *pattern, mp_obj_t replacement, const subject *in,
               const uint32_t *kept) {
  mp_buffer_info_t buffer;
  mp_get_buffer_raise(replacement, &buffer, MP_BUFFER_READ);
  const char *const text = buffer.buf, *const end = text + buffer.len, *c = text;
  while (c < end) {
    const char *const from = c;
    while (c < end && *c != '\\') c++;
    vstr_add_strn(out, from, (size_t)(c - from));
    if (c == end) break;
    const int at = (int)(c++ - text);
    if (c == end) fail("bad escape (end of text)", at);
    static const char letters[] = "abfnrtv\\", meanings[] = "\a\b\f\n\r\t\v\\";
    const char *const which = *c == '\0' ? NULL : strchr(letters, *c);
    if (which != NULL) {
      vstr_add_byte(out, (byte)meanings[which - letters]);
      c++;
    } else if (*c == 'g') {
      const char *const name = c + 2;
      const char *const close = end - c > 2 && c[1] == '<' ? memchr(name, '>', (size_t)(end - name)) : NULL;
      if (close == NULL) fail("\\g without <name>", at);
      add_group(out, pattern, named_group(pattern, name, (size_t)(close - name), at), in, kept);
      c = close + 1;
    } else if (*c == '0' || (end - c > 2 && is_octal(c[0]) && is_octal(c[1]) && is_octal(c[2]))) {
      unsigned value = 0;
      for (int i = 0; i < 3 && c < end && is_octal(*c); i++) value = value * 8 + (unsigned)(*c++ - '0');
      if (value > 0377) fail("octal escape value outside of range 0-0o377", at);
      if (pattern->program.bytes)
        vstr_add_byte(out, (byte)value);
      else
        vstr_add_char(out, value);
    } else if (is_digit(*c)) {
      mp_int_t number = *c++ - '0';
      if (c < end && is_digit(*c)) number = number * 10 + *c++ - '0';
      if (number > (mp_int_t)re_num_groups(pattern)) fail("invalid group reference", at);
      add_group(out, pattern, MP_OBJ_NEW_SMALL_INT(number), in, kept);
    } else if ((unsigned char)((*c | 32) - 'a') < 26) {
      fail("bad escape", at);
    } else {
      vstr_add_byte(out, '\\');
    }
  }
}
