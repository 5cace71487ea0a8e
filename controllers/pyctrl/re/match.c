/* Match objects of the module re. */
#include "py/objstr.h"
#include "py/objtuple.h"
#include "py/runtime.h"
#include "py/unicode.h"
#include "objects.h"

typedef struct match_object {
  mp_obj_base_t base;
  const pattern_object *pattern;
  subject in;
  uint32_t kept[];
} match_object;

uint32_t re_num_groups(const pattern_object *pattern) { return (pattern->program.num_kept - 1) / 2 - 1; }

/* Returns the byte position of a character, or of the end. */
static uint32_t byte_place(const subject *in, mp_int_t character) {
  if (character < 0) character = 0;
  if (in->plain) return (mp_uint_t)character < in->size ? (uint32_t)character : in->size;
  uint32_t at = 0;
  for (; at < in->size; at++)
    if ((in->data[at] & 0xC0) != 0x80 && character-- == 0) break;
  return at;
}

static mp_int_t character_place(const subject *in, uint32_t at) {
  return in->plain ? (mp_int_t)at : (mp_int_t)utf8_charlen(in->data, at);
}

subject re_subject(const pattern_object *pattern, mp_obj_t text, mp_int_t pos, mp_int_t endpos) {
  const bool bytes = pattern->program.bytes;
  if (!bytes && !mp_obj_is_str(text))
    mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("a pattern of str matches a str, not %s"),
                      mp_obj_get_type_str(text));
  if (bytes && mp_obj_is_str(text)) mp_raise_TypeError(MP_ERROR_TEXT("a pattern of bytes matches bytes, not str"));
  mp_buffer_info_t buffer;
  mp_get_buffer_raise(text, &buffer, MP_BUFFER_READ);
  subject in = {.object = text, .data = buffer.buf, .size = (uint32_t)buffer.len};
  in.plain = bytes || utf8_charlen(in.data, in.size) == in.size;
  in.start = byte_place(&in, pos);
  in.end = byte_place(&in, endpos);
  in.pos = character_place(&in, in.start);
  in.endpos = in.end == in.size && in.plain ? (mp_int_t)in.size : character_place(&in, in.end);
  return in;
}

mp_obj_t re_part(const subject *in, uint32_t from, uint32_t to) {
  const char *const data = (const char *)in->data + from;
  return mp_obj_is_str(in->object) ? mp_obj_new_str(data, to - from) : mp_obj_new_bytes((const byte *)data, to - from);
}

mp_obj_t re_group_text(const subject *in, const uint32_t *kept, uint32_t number, mp_obj_t otherwise) {
  const uint32_t from = kept[2 * number], to = kept[2 * number + 1];
  return from == RE_NONE || to == RE_NONE ? otherwise : re_part(in, from, to);
}

uint32_t re_group_number(const pattern_object *pattern, mp_obj_t group) {
  mp_int_t number = -1;
  if (mp_obj_is_int(group)) {
    number = mp_obj_get_int(group);
  } else {
    const mp_map_elem_t *const found = mp_map_lookup(mp_obj_dict_get_map(pattern->names), group, MP_MAP_LOOKUP);
    if (found != NULL) number = mp_obj_get_int(found->value);
  }
  if (number < 0 || number > (mp_int_t)re_num_groups(pattern))
    mp_raise_msg(&mp_type_IndexError, MP_ERROR_TEXT("no such group"));
  return (uint32_t)number;
}

mp_obj_t re_new_match(const pattern_object *pattern, const subject *in, const uint32_t *kept) {
  const size_t size = pattern->program.num_kept;
  match_object *const made = mp_obj_malloc_var(match_object, kept, uint32_t, size, &re_match_type);
  made->pattern = pattern;
  made->in = *in;
  for (size_t i = 0; i < size; i++) made->kept[i] = kept[i];
  return MP_OBJ_FROM_PTR(made);
}

/* ---- groups ---- */

static mp_obj_t get(const match_object *match, mp_obj_t group) {
  return re_group_text(&match->in, match->kept, re_group_number(match->pattern, group), mp_const_none);
}

static mp_obj_t match_group(size_t count, const mp_obj_t *of) {
  const match_object *const match = MP_OBJ_TO_PTR(of[0]);
  if (count == 1) return get(match, MP_OBJ_NEW_SMALL_INT(0));
  if (count == 2) return get(match, of[1]);
  const mp_obj_t all = mp_obj_new_tuple(count - 1, NULL);
  for (size_t i = 1; i < count; i++) ((mp_obj_tuple_t *)MP_OBJ_TO_PTR(all))->items[i - 1] = get(match, of[i]);
  return all;
}
static MP_DEFINE_CONST_FUN_OBJ_VAR(match_group_obj, 1, match_group);

/* Parses the argument `default` of groups() and groupdict(). */
static mp_obj_t otherwise(size_t count, const mp_obj_t *given, mp_map_t *keywords) {
  static const mp_arg_t allowed[] = {{MP_QSTR_default, MP_ARG_OBJ, {.u_rom_obj = MP_ROM_NONE}}};
  mp_arg_val_t of[MP_ARRAY_SIZE(allowed)];
  mp_arg_parse_all(count - 1, given + 1, keywords, MP_ARRAY_SIZE(allowed), allowed, of);
  return of[0].u_obj;
}

static mp_obj_t match_groups(size_t count, const mp_obj_t *given, mp_map_t *keywords) {
  const match_object *const match = MP_OBJ_TO_PTR(given[0]);
  const mp_obj_t without = otherwise(count, given, keywords);
  const uint32_t groups = re_num_groups(match->pattern);
  const mp_obj_t all = mp_obj_new_tuple(groups, NULL);
  for (uint32_t i = 0; i < groups; i++)
    ((mp_obj_tuple_t *)MP_OBJ_TO_PTR(all))->items[i] = re_group_text(&match->in, match->kept, i + 1, without);
  return all;
}
static MP_DEFINE_CONST_FUN_OBJ_KW(match_groups_obj, 1, match_groups);

static mp_obj_t match_groupdict(size_t count, const mp_obj_t *given, mp_map_t *keywords) {
  const match_object *const match = MP_OBJ_TO_PTR(given[0]);
  const mp_obj_t without = otherwise(count, given, keywords);
  const mp_map_t *const names = mp_obj_dict_get_map(match->pattern->names);
  const mp_obj_t all = mp_obj_new_dict(names->used);
  for (size_t i = 0; i < names->alloc; i++)
    if (mp_map_slot_is_filled(names, i)) {
      const uint32_t number = (uint32_t)mp_obj_get_int(names->table[i].value);
      mp_obj_dict_store(all, names->table[i].key, re_group_text(&match->in, match->kept, number, without));
    }
  return all;
}
static MP_DEFINE_CONST_FUN_OBJ_KW(match_groupdict_obj, 1, match_groupdict);

/* ---- positions ---- */

static mp_obj_t place(size_t count, const mp_obj_t *of, uint32_t which) {
  const match_object *const match = MP_OBJ_TO_PTR(of[0]);
  const uint32_t number = count == 1 ? 0 : re_group_number(match->pattern, of[1]);
  const uint32_t at = match->kept[2 * number + which];
  return MP_OBJ_NEW_SMALL_INT(at == RE_NONE ? -1 : character_place(&match->in, at));
}

static mp_obj_t match_start(size_t count, const mp_obj_t *of) { return place(count, of, 0); }
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(match_start_obj, 1, 2, match_start);

static mp_obj_t match_end(size_t count, const mp_obj_t *of) { return place(count, of, 1); }
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(match_end_obj, 1, 2, match_end);

static mp_obj_t match_span(size_t count, const mp_obj_t *of) {
  mp_obj_t both[] = {place(count, of, 0), place(count, of, 1)};
  return mp_obj_new_tuple(2, both);
}
static MP_DEFINE_CONST_FUN_OBJ_VAR_BETWEEN(match_span_obj, 1, 2, match_span);

static mp_obj_t match_expand(mp_obj_t self, mp_obj_t replacement) {
  const match_object *const match = MP_OBJ_TO_PTR(self);
  vstr_t out;
  vstr_init(&out, 32);
  re_expand(&out, match->pattern, replacement, &match->in, match->kept);
  return match->pattern->program.bytes ? mp_obj_new_bytes_from_vstr(&out) : mp_obj_new_str_from_vstr(&out);
}
static MP_DEFINE_CONST_FUN_OBJ_2(match_expand_obj, match_expand);

/* ---- the type ---- */

static mp_obj_t last_name(const match_object *match, uint32_t last) {
  const mp_map_t *const names = mp_obj_dict_get_map(match->pattern->names);
  for (size_t i = 0; i < names->alloc; i++)
    if (mp_map_slot_is_filled(names, i) && mp_obj_get_int(names->table[i].value) == (mp_int_t)last)
      return names->table[i].key;
  return mp_const_none;
}

static void match_attr(mp_obj_t self, qstr name, mp_obj_t *found) {
  if (found[0] != MP_OBJ_NULL) return;
  const match_object *const match = MP_OBJ_TO_PTR(self);
  const uint32_t last = match->kept[match->pattern->program.num_kept - 1];
  if (name == MP_QSTR_string)
    found[0] = match->in.object;
  else if (name == MP_QSTR_re)
    found[0] = MP_OBJ_FROM_PTR(match->pattern);
  else if (name == MP_QSTR_pos)
    found[0] = MP_OBJ_NEW_SMALL_INT(match->in.pos);
  else if (name == MP_QSTR_endpos)
    found[0] = MP_OBJ_NEW_SMALL_INT(match->in.endpos);
  else if (name == MP_QSTR_lastindex)
    found[0] = last == RE_NONE ? mp_const_none : MP_OBJ_NEW_SMALL_INT((mp_int_t)last);
  else if (name == MP_QSTR_lastgroup)
    found[0] = last == RE_NONE ? mp_const_none : last_name(match, last);
  else
    found[1] = MP_OBJ_SENTINEL;
}

static mp_obj_t match_subscr(mp_obj_t self, mp_obj_t index, mp_obj_t value) {
  return value == MP_OBJ_SENTINEL ? get(MP_OBJ_TO_PTR(self), index) : MP_OBJ_NULL;
}

static void match_print(const mp_print_t *print, mp_obj_t self, mp_print_kind_t kind) {
  (void)kind;
  const match_object *const match = MP_OBJ_TO_PTR(self);
  mp_printf(print, "<re.Match object; span=(%d, %d), match=", (int)character_place(&match->in, match->kept[0]),
            (int)character_place(&match->in, match->kept[1]));
  mp_obj_print_helper(print, get(match, MP_OBJ_NEW_SMALL_INT(0)), PRINT_REPR);
  mp_print_str(print, ">");
}

static const mp_rom_map_elem_t entries[] = {
    {MP_ROM_QSTR(MP_QSTR_group), MP_ROM_PTR(&match_group_obj)},
    {MP_ROM_QSTR(MP_QSTR_groups), MP_ROM_PTR(&match_groups_obj)},
    {MP_ROM_QSTR(MP_QSTR_groupdict), MP_ROM_PTR(&match_groupdict_obj)},
    {MP_ROM_QSTR(MP_QSTR_start), MP_ROM_PTR(&match_start_obj)},
    {MP_ROM_QSTR(MP_QSTR_end), MP_ROM_PTR(&match_end_obj)},
    {MP_ROM_QSTR(MP_QSTR_span), MP_ROM_PTR(&match_span_obj)},
    {MP_ROM_QSTR(MP_QSTR_expand), MP_ROM_PTR(&match_expand_obj)},
};
static MP_DEFINE_CONST_DICT(locals, entries);

MP_DEFINE_CONST_OBJ_TYPE(re_match_type, MP_QSTR_Match, MP_TYPE_FLAG_NONE, attr, match_attr, subscr, match_subscr, print,
                         match_print, locals_dict, &locals);
