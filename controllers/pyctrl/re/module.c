/* The module re: regular expressions as in Python. Whatever the pattern, the time grows no faster than the text. */
#include <string.h>

#include "py/objstr.h"
#include "py/objtuple.h"
#include "py/runtime.h"
#include "py/smallint.h"
#include "objects.h"

/* Maximum number of cached patterns, by text and flags, for functions that take the text of a pattern. */
#define MOST_CACHED 64

MP_REGISTER_ROOT_POINTER(mp_obj_t re_cache);

static mp_obj_t new_pattern(mp_obj_t text, uint32_t flags) {
  re_tree tree;
  re_parse(&tree, text, flags);
  pattern_object *const made = mp_obj_malloc(pattern_object, &re_pattern_type);
  made->text = text;
  made->names = tree.names;
  made->flags = tree.flags;
  re_emit(&made->program, &tree, !mp_obj_is_str(text));
  m_del(re_node, tree.nodes, tree.room);
  return MP_OBJ_FROM_PTR(made);
}

/* Returns a pattern, which is compiled if it is given as a text. */
static mp_obj_t compile_pattern(mp_obj_t text, mp_int_t flags) {
  if (mp_obj_is_type(text, &re_pattern_type)) {
    if (flags != 0) mp_raise_ValueError(MP_ERROR_TEXT("cannot process flags argument with a compiled pattern"));
    return text;
  }
  if (!mp_obj_is_str_or_bytes(text))
    mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("a pattern is a str or bytes, not %s"),
                      mp_obj_get_type_str(text));
  mp_obj_t *const cache = &MP_STATE_VM(re_cache);
  if (*cache == MP_OBJ_NULL || mp_obj_dict_get_map(*cache)->used == MOST_CACHED) *cache = mp_obj_new_dict(0);
  mp_obj_t both[] = {text, MP_OBJ_NEW_SMALL_INT(mp_obj_is_str(text) ? flags : -1 - flags)};
  const mp_obj_t key = mp_obj_new_tuple(2, both);
  const mp_map_elem_t *const found = mp_map_lookup(mp_obj_dict_get_map(*cache), key, MP_MAP_LOOKUP);
  if (found != NULL) return found->value;
  const mp_obj_t made = new_pattern(text, (uint32_t)flags);
  mp_obj_dict_store(*cache, key, made);
  return made;
}

/* ---- successive matches ---- */

typedef struct finder {
  const pattern_object *pattern;
  subject in;
  re_matcher *matcher;
  /* Where to search from, and whether an empty match there does not count. */
  uint32_t at;
  bool advance;
} finder;

static finder new_finder(mp_obj_t pattern, mp_obj_t text, mp_int_t pos, mp_int_t endpos) {
  finder made = {.pattern = MP_OBJ_TO_PTR(pattern)};
  made.in = re_subject(made.pattern, text, pos, endpos);
  made.at = made.in.start;
  made.matcher = re_matcher_new(&made.pattern->program);
  return made;
}

static const uint32_t *find_next(finder *of) {
  if (of->in.start > of->in.end) return NULL;
  const uint32_t *const kept = re_run(of->matcher, of->in.data, of->at, of->in.end, RE_SEARCH, of->advance);
  if (kept == NULL) return NULL;
  of->advance = kept[0] == kept[1];
  of->at = kept[1];
  return kept;
}

/* ---- search, match, fullmatch ---- */

static mp_obj_t match_once(mp_obj_t pattern, mp_obj_t text, mp_int_t pos, mp_int_t endpos, re_mode mode) {
  finder of = new_finder(pattern, text, pos, endpos);
  const uint32_t *kept = NULL;
  if (of.in.start <= of.in.end) kept = re_run(of.matcher, of.in.data, of.in.start, of.in.end, mode, false);
  const mp_obj_t result = kept == NULL ? mp_const_none : re_new_match(of.pattern, &of.in, kept);
  re_matcher_free(of.matcher);
  return result;
}

/* ---- findall, finditer ---- */

static mp_obj_t find_all(mp_obj_t pattern, mp_obj_t text, mp_int_t pos, mp_int_t endpos) {
  finder of = new_finder(pattern, text, pos, endpos);
  const uint32_t groups = re_num_groups(of.pattern);
  const mp_obj_t all = mp_obj_new_list(0, NULL), nothing = re_part(&of.in, 0, 0);
  for (const uint32_t *kept; (kept = find_next(&of)) != NULL;) {
    if (groups <= 1) {
      mp_obj_list_append(all, re_group_text(&of.in, kept, groups, nothing));
      continue;
    }
    const mp_obj_t tuple = mp_obj_new_tuple(groups, NULL);
    for (uint32_t i = 0; i < groups; i++)
      ((mp_obj_tuple_t *)MP_OBJ_TO_PTR(tuple))->items[i] = re_group_text(&of.in, kept, i + 1, nothing);
    mp_obj_list_append(all, tuple);
  }
  re_matcher_free(of.matcher);
  return all;
}

typedef struct iterator_object {
  mp_obj_base_t base;
  finder of;
} iterator_object;

static mp_obj_t iterate(mp_obj_t self) {
  iterator_object *const iterator = MP_OBJ_TO_PTR(self);
  if (iterator->of.matcher == NULL) return MP_OBJ_STOP_ITERATION;
  const uint32_t *const kept = find_next(&iterator->of);
  if (kept != NULL) return re_new_match(iterator->of.pattern, &iterator->of.in, kept);
  re_matcher_free(iterator->of.matcher);
  iterator->of.matcher = NULL;
  return MP_OBJ_STOP_ITERATION;
}

static MP_DEFINE_CONST_OBJ_TYPE(iterator_type, MP_QSTR_iterator, MP_TYPE_FLAG_ITER_IS_ITERNEXT, iter, iterate);

static mp_obj_t find_iter(mp_obj_t pattern, mp_obj_t text, mp_int_t pos, mp_int_t endpos) {
  iterator_object *const made = mp_obj_malloc(iterator_object, &iterator_type);
  made->of = new_finder(pattern, text, pos, endpos);
  return MP_OBJ_FROM_PTR(made);
}

/* ---- sub, split ---- */

static void add_replacement(vstr_t *out, const finder *of, mp_obj_t by, const uint32_t *kept) {
  if (!mp_obj_is_callable(by)) return re_expand(out, of->pattern, by, &of->in, kept);
  const mp_obj_t text = mp_call_function_1(by, re_new_match(of->pattern, &of->in, kept));
  if (mp_obj_is_str(text) == of->pattern->program.bytes)
    mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("a replacement is what the pattern is, str or bytes, not %s"),
                      mp_obj_get_type_str(text));
  mp_buffer_info_t buffer;
  mp_get_buffer_raise(text, &buffer, MP_BUFFER_READ);
  vstr_add_strn(out, buffer.buf, buffer.len);
}

/* (text, number of replacements) */
static mp_obj_t substitute(mp_obj_t pattern, mp_obj_t by, mp_obj_t text, mp_int_t most) {
  finder of = new_finder(pattern, text, 0, MP_SMALL_INT_MAX);
  const bool bytes = of.pattern->program.bytes;
  if (!mp_obj_is_callable(by) && mp_obj_is_str(by) == bytes)
    mp_raise_msg_varg(&mp_type_TypeError, MP_ERROR_TEXT("a replacement is what the pattern is, str or bytes, not %s"),
                      mp_obj_get_type_str(by));
  vstr_t out;
  vstr_init(&out, of.in.size + 16);
  uint32_t done = 0;
  mp_int_t count = 0;
  for (const uint32_t *kept; (most == 0 || count < most) && (kept = find_next(&of)) != NULL; count++) {
    const uint32_t end = kept[1];
    vstr_add_strn(&out, (const char *)of.in.data + done, kept[0] - done);
    add_replacement(&out, &of, by, kept);
    done = end;
  }
  vstr_add_strn(&out, (const char *)of.in.data + done, of.in.size - done);
  re_matcher_free(of.matcher);
  mp_obj_t both[] = {bytes ? mp_obj_new_bytes_from_vstr(&out) : mp_obj_new_str_from_vstr(&out),
                     MP_OBJ_NEW_SMALL_INT(count)};
  return mp_obj_new_tuple(2, both);
}

static mp_obj_t split_text(mp_obj_t pattern, mp_obj_t text, mp_int_t most) {
  finder of = new_finder(pattern, text, 0, MP_SMALL_INT_MAX);
  const mp_obj_t all = mp_obj_new_list(0, NULL);
  uint32_t done = 0;
  mp_int_t count = 0;
  for (const uint32_t *kept; (most == 0 || count < most) && (kept = find_next(&of)) != NULL; count++) {
    mp_obj_list_append(all, re_part(&of.in, done, kept[0]));
    for (uint32_t i = 1; i <= re_num_groups(of.pattern); i++)
      mp_obj_list_append(all, re_group_text(&of.in, kept, i, mp_const_none));
    done = kept[1];
  }
  mp_obj_list_append(all, re_part(&of.in, done, of.in.size));
  re_matcher_free(of.matcher);
  return all;
}

/* ---- for scripts: functions, which take the text of a pattern, and methods of patterns ---- */

#define REQUIRED(name) {MP_QSTR_##name, MP_ARG_REQUIRED | MP_ARG_OBJ, {0}}
#define NUMBER(name, otherwise) {MP_QSTR_##name, MP_ARG_INT, {.u_int = (otherwise)}}
#define PARSE(...)                            \
  static const mp_arg_t allowed[] = {__VA_ARGS__}; \
  mp_arg_val_t of[MP_ARRAY_SIZE(allowed)];    \
  mp_arg_parse_all(count, given, keywords, MP_ARRAY_SIZE(allowed), allowed, of)
#define GIVEN size_t count, const mp_obj_t *given, mp_map_t *keywords

/* Defines a function and a method that look for a pattern in a text. `...`: the remaining arguments of `call`. */
#define LOOKING(name, call, ...)                                                                               \
  static mp_obj_t re_##name(GIVEN) {                                                                           \
    PARSE(REQUIRED(pattern), REQUIRED(string), NUMBER(flags, 0));                                              \
    const mp_obj_t pattern = compile_pattern(of[0].u_obj, of[2].u_int);                                        \
    return call(pattern, of[1].u_obj, 0, MP_SMALL_INT_MAX __VA_OPT__(, ) __VA_ARGS__);                         \
  }                                                                                                            \
  static MP_DEFINE_CONST_FUN_OBJ_KW(re_##name##_obj, 0, re_##name);                                            \
  static mp_obj_t pattern_##name(GIVEN) {                                                                      \
    PARSE(REQUIRED(self), REQUIRED(string), NUMBER(pos, 0), NUMBER(endpos, MP_SMALL_INT_MAX));                 \
    return call(of[0].u_obj, of[1].u_obj, of[2].u_int, of[3].u_int __VA_OPT__(, ) __VA_ARGS__);                \
  }                                                                                                            \
  static MP_DEFINE_CONST_FUN_OBJ_KW(pattern_##name##_obj, 1, pattern_##name)

LOOKING(search, match_once, RE_SEARCH);
LOOKING(match, match_once, RE_HERE);
LOOKING(fullmatch, match_once, RE_WHOLE);
LOOKING(findall, find_all);
LOOKING(finditer, find_iter);

static mp_obj_t text_of(mp_obj_t both) { return ((mp_obj_tuple_t *)MP_OBJ_TO_PTR(both))->items[0]; }

static mp_obj_t re_subn(GIVEN) {
  PARSE(REQUIRED(pattern), REQUIRED(repl), REQUIRED(string), NUMBER(count, 0), NUMBER(flags, 0));
  return substitute(compile_pattern(of[0].u_obj, of[4].u_int), of[1].u_obj, of[2].u_obj, of[3].u_int);
}
static MP_DEFINE_CONST_FUN_OBJ_KW(re_subn_obj, 0, re_subn);

static mp_obj_t re_sub(GIVEN) { return text_of(re_subn(count, given, keywords)); }
static MP_DEFINE_CONST_FUN_OBJ_KW(re_sub_obj, 0, re_sub);

static mp_obj_t pattern_subn(GIVEN) {
  PARSE(REQUIRED(self), REQUIRED(repl), REQUIRED(string), NUMBER(count, 0));
  return substitute(of[0].u_obj, of[1].u_obj, of[2].u_obj, of[3].u_int);
}
static MP_DEFINE_CONST_FUN_OBJ_KW(pattern_subn_obj, 1, pattern_subn);

static mp_obj_t pattern_sub(GIVEN) { return text_of(pattern_subn(count, given, keywords)); }
static MP_DEFINE_CONST_FUN_OBJ_KW(pattern_sub_obj, 1, pattern_sub);

static mp_obj_t re_split(GIVEN) {
  PARSE(REQUIRED(pattern), REQUIRED(string), NUMBER(maxsplit, 0), NUMBER(flags, 0));
  return split_text(compile_pattern(of[0].u_obj, of[3].u_int), of[1].u_obj, of[2].u_int);
}
static MP_DEFINE_CONST_FUN_OBJ_KW(re_split_obj, 0, re_split);

static mp_obj_t pattern_split(GIVEN) {
  PARSE(REQUIRED(self), REQUIRED(string), NUMBER(maxsplit, 0));
  return split_text(of[0].u_obj, of[1].u_obj, of[2].u_int);
}
static MP_DEFINE_CONST_FUN_OBJ_KW(pattern_split_obj, 1, pattern_split);

static mp_obj_t re_compile(GIVEN) {
  PARSE(REQUIRED(pattern), NUMBER(flags, 0));
  return compile_pattern(of[0].u_obj, of[1].u_int);
}
static MP_DEFINE_CONST_FUN_OBJ_KW(re_compile_obj, 0, re_compile);

static mp_obj_t re_escape(mp_obj_t text) {
  mp_buffer_info_t buffer;
  mp_get_buffer_raise(text, &buffer, MP_BUFFER_READ);
  vstr_t out;
  vstr_init(&out, buffer.len + 8);
  for (size_t i = 0; i < buffer.len; i++) {
    const char c = ((const char *)buffer.buf)[i];
    if (c != '\0' && strchr("()[]{}?*+-|^$\\.&~# \t\n\r\v\f", c) != NULL) vstr_add_byte(&out, '\\');
    vstr_add_byte(&out, (byte)c);
  }
  return mp_obj_is_str(text) ? mp_obj_new_str_from_vstr(&out) : mp_obj_new_bytes_from_vstr(&out);
}
static MP_DEFINE_CONST_FUN_OBJ_1(re_escape_obj, re_escape);

static mp_obj_t re_purge(void) {
  MP_STATE_VM(re_cache) = MP_OBJ_NULL;
  return mp_const_none;
}
static MP_DEFINE_CONST_FUN_OBJ_0(re_purge_obj, re_purge);

/* ---- the type of patterns ---- */

static void pattern_attr(mp_obj_t self, qstr name, mp_obj_t *found) {
  if (found[0] != MP_OBJ_NULL) return;
  const pattern_object *const pattern = MP_OBJ_TO_PTR(self);
  if (name == MP_QSTR_pattern)
    found[0] = pattern->text;
  else if (name == MP_QSTR_flags)
    found[0] = MP_OBJ_NEW_SMALL_INT((mp_int_t)pattern->flags);
  else if (name == MP_QSTR_groups)
    found[0] = MP_OBJ_NEW_SMALL_INT((mp_int_t)re_num_groups(pattern));
  else if (name == MP_QSTR_groupindex)
    found[0] = mp_obj_dict_copy(pattern->names);
  else
    found[1] = MP_OBJ_SENTINEL;
}

static void pattern_print(const mp_print_t *print, mp_obj_t self, mp_print_kind_t kind) {
  (void)kind;
  mp_print_str(print, "re.compile(");
  mp_obj_print_helper(print, ((pattern_object *)MP_OBJ_TO_PTR(self))->text, PRINT_REPR);
  mp_print_str(print, ")");
}

#define METHOD(name) {MP_ROM_QSTR(MP_QSTR_##name), MP_ROM_PTR(&pattern_##name##_obj)}
static const mp_rom_map_elem_t methods[] = {
    METHOD(search), METHOD(match), METHOD(fullmatch), METHOD(findall), METHOD(finditer),
    METHOD(sub),    METHOD(subn),  METHOD(split),
};
static MP_DEFINE_CONST_DICT(locals, methods);

MP_DEFINE_CONST_OBJ_TYPE(re_pattern_type, MP_QSTR_Pattern, MP_TYPE_FLAG_NONE, attr, pattern_attr, print, pattern_print,
                         locals_dict, &locals);

/* ---- the module ---- */

#define FUNCTION(name) {MP_ROM_QSTR(MP_QSTR_##name), MP_ROM_PTR(&re_##name##_obj)}
#define FLAG(name, value) {MP_ROM_QSTR(MP_QSTR_##name), MP_ROM_INT(value)}
static const mp_rom_map_elem_t entries[] = {
    {MP_ROM_QSTR(MP_QSTR___name__), MP_ROM_QSTR(MP_QSTR_re)},
    FUNCTION(compile),
    FUNCTION(search),
    FUNCTION(match),
    FUNCTION(fullmatch),
    FUNCTION(findall),
    FUNCTION(finditer),
    FUNCTION(sub),
    FUNCTION(subn),
    FUNCTION(split),
    FUNCTION(escape),
    FUNCTION(purge),
    {MP_ROM_QSTR(MP_QSTR_error), MP_ROM_PTR(&re_error_type)},
    {MP_ROM_QSTR(MP_QSTR_PatternError), MP_ROM_PTR(&re_error_type)},
    {MP_ROM_QSTR(MP_QSTR_Pattern), MP_ROM_PTR(&re_pattern_type)},
    {MP_ROM_QSTR(MP_QSTR_Match), MP_ROM_PTR(&re_match_type)},
    FLAG(A, RE_ASCII),
    FLAG(ASCII, RE_ASCII),
    FLAG(I, RE_IGNORECASE),
    FLAG(IGNORECASE, RE_IGNORECASE),
    FLAG(M, RE_MULTILINE),
    FLAG(MULTILINE, RE_MULTILINE),
    FLAG(S, RE_DOTALL),
    FLAG(DOTALL, RE_DOTALL),
    FLAG(U, RE_UNICODE),
    FLAG(UNICODE, RE_UNICODE),
    FLAG(X, RE_VERBOSE),
    FLAG(VERBOSE, RE_VERBOSE),
};
static MP_DEFINE_CONST_DICT(globals, entries);

const mp_obj_module_t re_module = {.base = {&mp_type_module}, .globals = (mp_obj_dict_t *)&globals};
MP_REGISTER_MODULE(MP_QSTR_re, re_module);
