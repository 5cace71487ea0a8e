/* objects.h - pattern and match objects of the module re. */
#ifndef AICI_PYCTRL_RE_OBJECTS_H
#define AICI_PYCTRL_RE_OBJECTS_H

#include "program.h"

typedef struct pattern_object {
  mp_obj_base_t base;
  /* The source: str or bytes. */
  mp_obj_t text;
  /* {name: number of the group} */
  mp_obj_t names;
  uint32_t flags;
  re_program program;
} pattern_object;

/* The text in which a pattern is searched. Positions in it are in bytes. */
typedef struct subject {
  mp_obj_t object;
  const byte *data;
  uint32_t size;
  /* Whether each character is one byte. */
  bool plain;
  /* The part to search, in bytes and in characters. */
  uint32_t start, end;
  mp_int_t pos, endpos;
} subject;

extern const mp_obj_type_t re_pattern_type, re_match_type;

uint32_t re_num_groups(const pattern_object *pattern);
/* Raises TypeError if one of text and pattern is str and the other is bytes. `pos` and `endpos` are in characters. */
subject re_subject(const pattern_object *pattern, mp_obj_t text, mp_int_t pos, mp_int_t endpos);
mp_obj_t re_part(const subject *in, uint32_t from, uint32_t to);
/* Returns a group's text, or `otherwise` if the group took no part. */
mp_obj_t re_group_text(const subject *in, const uint32_t *kept, uint32_t number, mp_obj_t otherwise);
/* Returns the number of a group that is given by number or name; raises IndexError. */
uint32_t re_group_number(const pattern_object *pattern, mp_obj_t group);
mp_obj_t re_new_match(const pattern_object *pattern, const subject *in, const uint32_t *kept);

/* Appends the replacement for a match. Escapes such as \1 and \g<name> stand for groups. */
void re_expand(vstr_t *out, const pattern_object *pattern, mp_obj_t replacement, const subject *in,
               const uint32_t *kept);

#endif /* AICI_PYCTRL_RE_OBJECTS_H */
