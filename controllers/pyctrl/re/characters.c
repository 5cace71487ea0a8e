/* Categories and case of characters in regular expressions. */
#include "program.h"

/* Upper-case letters: every step-th code point of a range. The lower-case letter is `further` code points away. */
static const struct {
  uint16_t from, to, step;
  int16_t further;
} letters[] = {
    {'A', 'Z', 1, 32},           {0xC0, 0xD6, 1, 32},         {0xD8, 0xDE, 1, 32},         {0x100, 0x12E, 2, 1},
    {0x132, 0x136, 2, 1},        {0x139, 0x147, 2, 1},        {0x14A, 0x176, 2, 1},        {0x178, 0x178, 1, -121},
    {0x179, 0x17D, 2, 1},        {0x386, 0x386, 1, 38},       {0x388, 0x38A, 1, 37},       {0x38C, 0x38C, 1, 64},
    {0x38E, 0x38F, 1, 63},       {0x391, 0x3A1, 1, 32},       {0x3A3, 0x3AB, 1, 32},       {0x400, 0x40F, 1, 80},
    {0x410, 0x42F, 1, 32},       {0x460, 0x480, 2, 1},        {0x48A, 0x4BE, 2, 1},        {0x4D0, 0x52E, 2, 1},
    {0x531, 0x556, 1, 48},       {0x1E00, 0x1E94, 2, 1},      {0x1EA0, 0x1EFE, 2, 1},      {0xFF21, 0xFF3A, 1, 32},
};

uint32_t re_lower(uint32_t c, bool ascii) {
  for (size_t i = 0; i < (ascii ? 1 : MP_ARRAY_SIZE(letters)); i++) {
    if (c < letters[i].from) return c;
    if (c <= letters[i].to && (c - letters[i].from) % letters[i].step == 0) return c + (uint32_t)letters[i].further;
  }
  return c;
}

uint32_t re_upper(uint32_t c, bool ascii) {
  for (size_t i = 0; i < (ascii ? 1 : MP_ARRAY_SIZE(letters)); i++) {
    const uint32_t capital = c - (uint32_t)letters[i].further;
    if (capital >= letters[i].from && capital <= letters[i].to && (capital - letters[i].from) % letters[i].step == 0)
      return capital;
  }
  return c;
}

/* Characters above ASCII that are blanks, punctuation, symbols or combining marks. All others are letters and
 * numbers. */
static const uint32_t no_words[][2] = {
    {0x80, 0xA9},     {0xAB, 0xB1},     {0xB4, 0xB4},     {0xB6, 0xB8},     {0xBB, 0xBB},     {0xBF, 0xBF},
    {0xD7, 0xD7},     {0xF7, 0xF7},     {0x2C2, 0x2C5},   {0x2D2, 0x2DF},   {0x300, 0x36F},   {0x37E, 0x37E},
    {0x384, 0x385},   {0x387, 0x387},   {0x55A, 0x55F},   {0x589, 0x5C7},   {0x5F3, 0x61F},   {0x64B, 0x65F},
    {0x66A, 0x66D},   {0x6D4, 0x6D4},   {0x93E, 0x94F},   {0x964, 0x965},   {0xE3F, 0xE3F},   {0x1680, 0x1680},
    {0x2000, 0x206F}, {0x20A0, 0x2101}, {0x218A, 0x245F}, {0x249C, 0x24E9}, {0x2500, 0x2775}, {0x2794, 0x2BFF},
    {0x2E00, 0x2E2E}, {0x2E30, 0x3004}, {0x3008, 0x3020}, {0x3030, 0x3030}, {0x303D, 0x303F}, {0x30A0, 0x30A0},
    {0x30FB, 0x30FB}, {0x3200, 0x321E}, {0x4DC0, 0x4DFF}, {0xD800, 0xF8FF}, {0xFE00, 0xFE6F}, {0xFEFF, 0xFF0F},
    {0xFF1A, 0xFF20}, {0xFF3B, 0xFF40}, {0xFF5B, 0xFF65}, {0xFFE0, 0xFFFF}, {0x1D000, 0x1D245}, {0x1F000, 0x1F0FF},
    {0x1F10D, 0x1FBEF}, {0xE0000, 0x10FFFF},
};

bool re_is_word(uint32_t c, bool ascii) {
  if (c < 128) return (c | 32) - 'a' < 26 || c - '0' < 10 || c == '_';
  if (ascii) return false;
  for (size_t i = 0; i < MP_ARRAY_SIZE(no_words) && c >= no_words[i][0]; i++)
    if (c <= no_words[i][1]) return false;
  return true;
}

bool re_is_space(uint32_t c, bool ascii) {
  if (c - 9 < 5 || c == ' ') return true;
  if (ascii) return false;
  return c - 0x1C < 4 || c == 0x85 || c == 0xA0 || c == 0x1680 || c - 0x2000 < 11 || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool has(const re_class *one, const uint32_t *ranges, uint32_t c) {
  const uint8_t wanted = one->categories;
  if (wanted & (RE_DIGIT | RE_NO_DIGIT) && wanted & (c - '0' < 10 ? RE_DIGIT : RE_NO_DIGIT)) return true;
  if (wanted & (RE_SPACE | RE_NO_SPACE) && wanted & (re_is_space(c, one->ascii) ? RE_SPACE : RE_NO_SPACE)) return true;
  if (wanted & (RE_WORD | RE_NO_WORD) && wanted & (re_is_word(c, one->ascii) ? RE_WORD : RE_NO_WORD)) return true;
  for (uint32_t i = one->first; i < one->first + 2 * one->count; i += 2)
    if (c >= ranges[i] && c <= ranges[i + 1]) return true;
  return false;
}

bool re_class_has(const re_class *one, const uint32_t *ranges, uint32_t c) {
  bool found = has(one, ranges, c);
  if (!found && one->fold)
    found = has(one, ranges, re_lower(c, one->ascii)) || has(one, ranges, re_upper(c, one->ascii));
  return found != one->negated;
}
