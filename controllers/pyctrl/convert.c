#include "convert.h"

#include <math.h>

#include "py/objstr.h"
#include "py/runtime.h"
#include "py/unicode.h"

MP_DEFINE_CONST_OBJ_TYPE(aici_error_type, MP_QSTR_Error, MP_TYPE_FLAG_NONE, make_new, mp_obj_exception_make_new, print,
                         mp_obj_exception_print, attr, mp_obj_exception_attr, parent, &mp_type_Exception);

void raise_if(script_error error) {
  if (error != NULL) mp_raise_msg_varg(&aici_error_type, MP_ERROR_TEXT("%s"), error);
}

script_text to_text(mp_obj_t object) {
  mp_buffer_info_t buffer;
  mp_get_buffer_raise(object, &buffer, MP_BUFFER_READ);
  return (script_text){buffer.buf, buffer.len};
}

script_tokens to_tokens(mp_obj_t object) {
  script_tokens tokens;
  if (mp_obj_is_str_or_bytes(object)) {
    raise_if(script_tokenize(to_text(object), &tokens));
    return tokens;
  }
  mp_obj_t *items;
  mp_obj_get_array(object, &tokens.size, &items);
  uint32_t *copy = m_new(uint32_t, tokens.size);
  for (size_t i = 0; i < tokens.size; i++) {
    const mp_int_t token = mp_obj_get_int(items[i]);
    if (token < 0 || (mp_uint_t)token >= script_vocabulary_size())
      mp_raise_msg_varg(&mp_type_ValueError, MP_ERROR_TEXT("there is no token %d: the vocabulary has %d"), (int)token,
                        (int)script_vocabulary_size());
    copy[i] = (uint32_t)token;
  }
  tokens.data = copy;
  return tokens;
}

mp_obj_t from_tokens(script_tokens tokens) {
  const mp_obj_t list = mp_obj_new_list(tokens.size, NULL);
  for (size_t i = 0; i < tokens.size; i++)
    mp_obj_list_store(list, MP_OBJ_NEW_SMALL_INT((mp_int_t)i), mp_obj_new_int_from_uint(tokens.data[i]));
  return list;
}

/* Returns the number of bytes of the character at `text`; 0 if it is invalid. */
static size_t character(const unsigned char *text, size_t size) {
  const unsigned char first = text[0];
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || length > size) return 0;
  for (size_t i = 1; i < length; i++)
    if ((text[i] & 0xC0) != 0x80) return 0;
  if ((first == 0xE0 && text[1] < 0xA0) || (first == 0xED && text[1] > 0x9F) || (first == 0xF0 && text[1] < 0x90) ||
      (first == 0xF4 && text[1] > 0x8F))
    return 0;
  return length;
}

mp_obj_t from_text(script_text text) {
  const unsigned char *data = (const unsigned char *)text.data;
  if (utf8_check(data, text.size)) return mp_obj_new_str(text.data, text.size);
  vstr_t out;
  vstr_init(&out, text.size + 8);
  for (size_t at = 0; at < text.size;) {
    const size_t length = character(data + at, text.size - at);
    if (length == 0) {
      vstr_add_str(&out, "\xEF\xBF\xBD");
      at++;
    } else {
      vstr_add_strn(&out, text.data + at, length);
      at += length;
    }
  }
  return mp_obj_new_str_from_vstr(&out);
}

mp_obj_t from_bytes(script_text text) { return mp_obj_new_bytes((const byte *)text.data, text.size); }

mp_obj_t from_logprob(float value) { return isnan(value) ? mp_const_none : mp_obj_new_float((mp_float_t)value); }

mp_obj_t from_top(const script_top *top, size_t count) {
  const mp_obj_t list = mp_obj_new_list(count, NULL);
  for (size_t i = 0; i < count; i++) {
    mp_obj_t pair[] = {mp_obj_new_int_from_uint(top[i].token), mp_obj_new_float((mp_float_t)top[i].logprob)};
    mp_obj_list_store(list, MP_OBJ_NEW_SMALL_INT((mp_int_t)i), mp_obj_new_tuple(2, pair));
  }
  return list;
}

uint32_t *to_mask(mp_obj_t object) {
  if (object == mp_const_none) return NULL;
  mp_buffer_info_t buffer;
  mp_get_buffer_raise(object, &buffer, MP_BUFFER_RW);
  if (buffer.len != script_mask_words() * sizeof(uint32_t))
    mp_raise_ValueError(MP_ERROR_TEXT("a mask has one bit for every token of the vocabulary"));
  return buffer.buf;
}
