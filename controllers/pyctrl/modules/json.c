/* The module json: loads and dumps, as in Python. */
#include <math.h>
#include <string.h>

#include "../convert.h"
#include "py/objstr.h"
#include "py/parsenum.h"
#include "py/runtime.h"
#include "py/unicode.h"

/* ---- reading ---- */

/* Maximum nesting of arrays and objects, since the reader and the writer recurse. */
#define MOST_DEPTH 256

typedef struct reader {
  const char *text, *at, *end;
  int depth;
} reader;

static void check_depth(int depth) {
  if (depth > MOST_DEPTH)
    mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("more than %d arrays and objects in each other"), MOST_DEPTH);
}

__attribute__((noreturn)) static void fail_read(const reader *json, const char *wanted) {
  int line = 1, column = 1;
  for (const char *c = json->text; c < json->at; c++) {
    column = *c == '\n' ? 1 : column + 1;
    line += *c == '\n';
  }
  mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("%s expected: line %d column %d (char %d)"), wanted, line,
                    column, (int)(json->at - json->text));
  __builtin_unreachable();
}

static char peek(reader *json) { return json->at < json->end ? *json->at : '\0'; }

static void skip_blanks(reader *json) {
  while (json->at < json->end && strchr(" \t\r\n", *json->at) != NULL && *json->at != '\0') json->at++;
}

static bool accept(reader *json, char c) {
  skip_blanks(json);
  if (peek(json) != c) return false;
  json->at++;
  return true;
}

static unsigned read_hex(reader *json) {
  unsigned value = 0;
  for (int i = 0; i < 4; i++, json->at++) {
    const char c = peek(json);
    if (!unichar_isxdigit((unichar)c)) fail_read(json, "hexadecimal digit");
    value = value << 4 | (unsigned)unichar_xdigit_value((unichar)c);
  }
  return value;
}

static void read_escape(reader *json, vstr_t *out) {
  static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  const char c = peek(json);
  if (c == 'u') {
    json->at++;
    unsigned value = read_hex(json);
    if (value >= 0xD800 && value < 0xDC00 && json->end - json->at >= 6 && json->at[0] == '\\' && json->at[1] == 'u') {
      const char *const before = json->at;
      json->at += 2;
      const unsigned low = read_hex(json);
      if (low >= 0xDC00 && low < 0xE000)
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      else
        json->at = before;
    }
    /* UTF-8 has no surrogates, which are half a character */
    vstr_add_char(out, value >= 0xD800 && value < 0xE000 ? 0xFFFD : value);
    return;
  }
  const char *const which = c == '\0' ? NULL : strchr(letters, c);
  if (which == NULL) fail_read(json, "one of \"\\/bfnrtu after a backslash");
  vstr_add_byte(out, (byte)meanings[which - letters]);
  json->at++;
}

static mp_obj_t read_string(reader *json) {
  if (peek(json) != '"') fail_read(json, "string");
  json->at++;
  vstr_t out;
  vstr_init(&out, 16);
  for (;;) {
    const char *const from = json->at;
    while (json->at < json->end && *json->at != '"' && *json->at != '\\' && (unsigned char)*json->at >= ' ') json->at++;
    vstr_add_strn(&out, from, (size_t)(json->at - from));
    if (json->at == json->end) fail_read(json, "closing quote");
    const char c = *json->at;
    if ((unsigned char)c < ' ') fail_read(json, "escape instead of a control character");
    json->at++;
    if (c == '"') return mp_obj_new_str_from_vstr(&out);
    read_escape(json, &out);
  }
}

static mp_obj_t read_number(reader *json) {
  const char *const from = json->at;
  bool whole = true;
  if (peek(json) == '-') json->at++;
  if (!unichar_isdigit((unichar)peek(json))) fail_read(json, "value");
  const bool zero = peek(json) == '0';
  const char *const digits = json->at;
  while (unichar_isdigit((unichar)peek(json))) json->at++;
  if (zero && json->at - digits > 1) {
    json->at = digits + 1;
    fail_read(json, "number without leading zeros");
  }
  if (peek(json) == '.') {
    whole = false;
    json->at++;
    if (!unichar_isdigit((unichar)peek(json))) fail_read(json, "digit");
    while (unichar_isdigit((unichar)peek(json))) json->at++;
  }
  if (peek(json) == 'e' || peek(json) == 'E') {
    whole = false;
    json->at++;
    if (peek(json) == '+' || peek(json) == '-') json->at++;
    if (!unichar_isdigit((unichar)peek(json))) fail_read(json, "digit");
    while (unichar_isdigit((unichar)peek(json))) json->at++;
  }
  const size_t size = (size_t)(json->at - from);
  return whole ? mp_parse_num_integer(from, size, 10, NULL) : mp_parse_num_float(from, size, false, NULL);
}

static mp_obj_t read_value(reader *json);

static mp_obj_t read_array(reader *json) {
  const mp_obj_t list = mp_obj_new_list(0, NULL);
  if (accept(json, ']')) return list;
  do
    mp_obj_list_append(list, read_value(json));
  while (accept(json, ','));
  if (!accept(json, ']')) fail_read(json, "',' or ']'");
  return list;
}

static mp_obj_t read_object(reader *json) {
  const mp_obj_t dict = mp_obj_new_dict(0);
  if (accept(json, '}')) return dict;
  do {
    skip_blanks(json);
    const mp_obj_t name = read_string(json);
    if (!accept(json, ':')) fail_read(json, "':'");
    mp_obj_dict_store(dict, name, read_value(json));
  } while (accept(json, ','));
  if (!accept(json, '}')) fail_read(json, "',' or '}'");
  return dict;
}

static bool accept_word(reader *json, const char *word) {
  const size_t size = strlen(word);
  if ((size_t)(json->end - json->at) < size || memcmp(json->at, word, size) != 0) return false;
  json->at += size;
  return true;
}

static mp_obj_t read_value(reader *json) {
  skip_blanks(json);
  mp_obj_t value = MP_OBJ_NULL;
  switch (peek(json)) {
    case '{':
    case '[':
      check_depth(++json->depth);
      value = *json->at++ == '{' ? read_object(json) : read_array(json);
      json->depth--;
      return value;
    case '"':
      return read_string(json);
    default:
      break;
  }
  if (accept_word(json, "true")) return mp_const_true;
  if (accept_word(json, "false")) return mp_const_false;
  if (accept_word(json, "null")) return mp_const_none;
  return read_number(json);
}

static mp_obj_t loads(mp_obj_t object) {
  const script_text text = to_text(object);
  reader json = {text.data, text.data, text.data + text.size, 0};
  const mp_obj_t value = read_value(&json);
  skip_blanks(&json);
  if (json.at != json.end) fail_read(&json, "end of the text");
  return value;
}
static MP_DEFINE_CONST_FUN_OBJ_1(loads_obj, loads);

/* ---- writing ---- */

typedef struct writer {
  vstr_t out;
  bool ascii;
  /* Spaces per level; if negative, everything is on one line. */
  mp_int_t indent;
  const char *comma, *colon;
} writer;

static void write_string(writer *json, mp_obj_t object) {
  size_t size;
  const byte *text = (const byte *)mp_obj_str_get_data(object, &size), *const end = text + size;
  vstr_t *const out = &json->out;
  vstr_add_byte(out, '"');
  while (text < end) {
    const unichar c = utf8_get_char(text);
    const byte *const next = utf8_next_char(text);
    static const char letters[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
    const char *const which = c < 0x80 && c != 0 ? strchr(letters, (int)c) : NULL;
    if (which != NULL) {
      vstr_add_byte(out, '\\');
      vstr_add_byte(out, (byte)escapes[which - letters]);
    } else if (c < ' ' || (json->ascii && c >= 0x7F)) {
      if (c >= 0x10000)
        vstr_printf(out, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                    (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
      else
        vstr_printf(out, "\\u%04x", (unsigned)c);
    } else {
      vstr_add_strn(out, (const char *)text, (size_t)(next - text));
    }
    text = next;
  }
  vstr_add_byte(out, '"');
}

static void new_line(writer *json, mp_int_t level) {
  if (json->indent < 0) return;
  vstr_add_byte(&json->out, '\n');
  for (mp_int_t i = 0; i < level * json->indent; i++) vstr_add_byte(&json->out, ' ');
}

static void write_value(writer *json, mp_obj_t object, mp_int_t level);

static void write_items(writer *json, mp_obj_t object, mp_int_t level) {
  size_t count;
  mp_obj_t *items;
  mp_obj_get_array(object, &count, &items);
  vstr_add_byte(&json->out, '[');
  for (size_t i = 0; i < count; i++) {
    if (i > 0) vstr_add_str(&json->out, json->comma);
    new_line(json, level + 1);
    write_value(json, items[i], level + 1);
  }
  if (count > 0) new_line(json, level);
  vstr_add_byte(&json->out, ']');
}

static void write_name(writer *json, mp_obj_t name) {
  if (mp_obj_is_str(name)) return write_string(json, name);
  if (!mp_obj_is_int(name) && !mp_obj_is_float(name) && !mp_obj_is_bool(name) && name != mp_const_none)
    mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("a name in JSON is a str, not %s"), mp_obj_get_type_str(name));
  vstr_add_byte(&json->out, '"');
  write_value(json, name, 0);
  vstr_add_byte(&json->out, '"');
}

static void write_members(writer *json, mp_obj_t object, mp_int_t level) {
  const mp_map_t *const map = mp_obj_dict_get_map(object);
  bool first = true;
  vstr_add_byte(&json->out, '{');
  for (size_t i = 0; i < map->alloc; i++) {
    if (!mp_map_slot_is_filled(map, i)) continue;
    if (!first) vstr_add_str(&json->out, json->comma);
    first = false;
    new_line(json, level + 1);
    write_name(json, map->table[i].key);
    vstr_add_str(&json->out, json->colon);
    write_value(json, map->table[i].value, level + 1);
  }
  if (!first) new_line(json, level);
  vstr_add_byte(&json->out, '}');
}

static void write_value(writer *json, mp_obj_t object, mp_int_t level) {
  check_depth((int)level);
  vstr_t *const out = &json->out;
  if (object == mp_const_none)
    vstr_add_str(out, "null");
  else if (mp_obj_is_bool(object))
    vstr_add_str(out, object == mp_const_true ? "true" : "false");
  else if (mp_obj_is_str(object))
    write_string(json, object);
  else if (mp_obj_is_dict_or_ordereddict(object))
    write_members(json, object, level);
  else if (mp_obj_cast_to_native_base(object, MP_OBJ_FROM_PTR(&mp_type_dict)) != MP_OBJ_NULL)
    write_members(json, mp_obj_cast_to_native_base(object, MP_OBJ_FROM_PTR(&mp_type_dict)), level);
  else if (mp_obj_is_type(object, &mp_type_list) || mp_obj_is_type(object, &mp_type_tuple))
    write_items(json, object, level);
  else if (mp_obj_is_int(object) || mp_obj_is_float(object)) {
    if (mp_obj_is_float(object) && !isfinite(mp_obj_get_float(object)))
      mp_raise_ValueError(MP_ERROR_TEXT("JSON has no infinite numbers and no NaN"));
    mp_print_t print = {out, (mp_print_strn_t)vstr_add_strn};
    mp_obj_print_helper(&print, object, PRINT_REPR);
  } else {
    mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("%s is nothing that JSON has"), mp_obj_get_type_str(object));
  }
}

static mp_obj_t dumps(size_t count, const mp_obj_t *given, mp_map_t *keywords) {
  static const mp_arg_t allowed[] = {
      {MP_QSTR_obj, MP_ARG_REQUIRED | MP_ARG_OBJ, {0}},
      {MP_QSTR_ensure_ascii, MP_ARG_KW_ONLY | MP_ARG_BOOL, {.u_bool = true}},
      {MP_QSTR_indent, MP_ARG_KW_ONLY | MP_ARG_OBJ, {.u_rom_obj = MP_ROM_NONE}},
      {MP_QSTR_separators, MP_ARG_KW_ONLY | MP_ARG_OBJ, {.u_rom_obj = MP_ROM_NONE}},
  };
  mp_arg_val_t of[MP_ARRAY_SIZE(allowed)];
  mp_arg_parse_all(count, given, keywords, MP_ARRAY_SIZE(allowed), allowed, of);
  writer json = {.ascii = of[1].u_bool, .indent = -1, .comma = ", ", .colon = ": "};
  if (of[2].u_obj != mp_const_none) {
    json.indent = mp_obj_get_int(of[2].u_obj);
    json.comma = ",";
  }
  if (of[3].u_obj != mp_const_none) {
    mp_obj_t *both;
    mp_obj_get_array_fixed_n(of[3].u_obj, 2, &both);
    json.comma = mp_obj_str_get_str(both[0]);
    json.colon = mp_obj_str_get_str(both[1]);
  }
  vstr_init(&json.out, 32);
  write_value(&json, of[0].u_obj, 0);
  return mp_obj_new_str_from_vstr(&json.out);
}
static MP_DEFINE_CONST_FUN_OBJ_KW(dumps_obj, 1, dumps);

static const mp_rom_map_elem_t entries[] = {
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR_json)},
    {MP_ROM_QSTR(MP_QSTR_loads), MP_ROM_PTR(&loads_obj)},
    {MP_ROM_QSTR(MP_QSTR_dumps), MP_ROM_PTR(&dumps_obj)},
    {MP_ROM_QSTR(MP_QSTR_JSONDecodeError), MP_ROM_PTR(&mp_type_ValueError)},
};
static MP_DEFINE_CONST_DICT(globals, entries);

const mp_obj_module_t json_module = {.base = {&mp_type_module}, .globals = (mp_obj_dict_t *)&globals};
MP_REGISTER_MODULE(MP_QSTR_json, json_module);
