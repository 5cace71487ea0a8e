#include "formats.hpp"

#include <cstddef>
#include <string>
#include <utility>

#define DATE                                                                                                       \
  "(?:(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"    \
  "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"                                            \
  "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define DURATION_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define LABEL(most) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," most "}[A-Za-z0-9])?"
// labels with -- after two characters are encoded, and not every code is valid
#define PLAIN_LABEL(most)                                                                                         \
  "[A-Za-z0-9](?:[A-Za-z0-9-]{0,2}[A-Za-z0-9]|[A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0," \
  most "}[A-Za-z0-9])?"
// at most 253 characters: three long labels, a long one and six short ones, or eight short ones
#define LABELS(large, small) \
  "(?:" large "(?:(?:\\." large "){0,2}|(?:\\." small "){0,6})|" small "(?:\\." small "){0,7})"
#define HOSTNAME LABELS(LABEL("61"), LABEL("28"))
#define PLAIN_HOSTNAME LABELS(PLAIN_LABEL("58"), PLAIN_LABEL("25"))
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                    \
  "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16      \
  ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 \
  ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16        \
  ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
#define EMAIL ATOM "{1,64}(?:\\." ATOM "+)*@(?:" HOSTNAME "|\\[" IPV4 "\\]|\\[IPv6:" IPV6 "\\])"
#define HEX(many) "[0-9A-Fa-f]{" many "}"
#define UUID(version) HEX("8") "-" HEX("4") "-" version HEX("3") "-[89ABab]" HEX("3") "-" HEX("12")
#define PERCENT "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|" PERCENT ")"
#define USERINFO "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|" PERCENT ")*"
#define REG_NAME "(?:[A-Za-z0-9._~!$&'()*+,;=-]|" PERCENT ")*"
#define AUTHORITY "(?:" USERINFO "@)?(?:\\[" IPV6 "\\]|" REG_NAME ")(?::[0-9]*)?"
#define TAIL "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define ROOTLESS PCHAR "+(?:/" PCHAR "*)*"
#define HIERARCHY "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" ROOTLESS ")?"
#define URI "[A-Za-z][A-Za-z0-9+.-]*:" HIERARCHY "|(?:" ROOTLESS ")?)" TAIL
// the first part of a relative path has no colon, since it would be a scheme
#define NO_COLON "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|" PERCENT ")+"
#define RELATIVE HIERARCHY "|(?:" NO_COLON "(?:/" PCHAR "*)*)?)" TAIL
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define VARIABLE "(?:[A-Za-z0-9_]|" PERCENT ")+(?:\\*|:[1-9][0-9]{0,3})?"
// Regular expressions of ECMAScript with the flag u. Its quantifiers need an atom, and {n,m} needs n <= m.
#define REGEX_BOUNDS                                                                                            \
  "0,[0-9]{1,3}|1,[1-9][0-9]{0,2}|2,(?:[2-9]|[1-9][0-9]{1,2})|3,(?:[3-9]|[1-9][0-9]{1,2})|"                     \
  "4,(?:[4-9]|[1-9][0-9]{1,2})|5,(?:[5-9]|[1-9][0-9]{1,2})|6,(?:[6-9]|[1-9][0-9]{1,2})|"                        \
  "7,(?:[7-9]|[1-9][0-9]{1,2})|8,(?:[89]|[1-9][0-9]{1,2})|9,(?:9|[1-9][0-9]{1,2})|[1-9][0-9],[1-9][0-9]{2}"
#define REGEX_QUANTIFIER "(?:(?:[*+?]|\\{(?:[0-9]{1,3},?|" REGEX_BOUNDS ")\\})[?]?)?"
#define REGEX_ESCAPE(more) "\\\\(?:[dDsSwWfnrtv.*+?()\\[\\]{}^$|/\\\\" more "]|x" HEX("2") "|u" HEX("4") ")"
#define REGEX_RANGE                                                                                             \
  "a-[a-z]|[a-z]-z|A-[A-Z]|[A-Z]-Z|0-[0-9]|1-[1-9]|2-[2-9]|3-[3-9]|4-[4-9]|5-[5-9]|6-[6-9]|7-[7-9]|8-[89]|9-9"
#define REGEX_CLASS "\\[\\^?-?(?:[^\\\\\\[\\]^-]|" REGEX_RANGE "|" REGEX_ESCAPE("-") ")+-?\\]"
#define REGEX_ATOM "[^\\\\^$.*+?()\\[\\]{}|]|\\.|" REGEX_ESCAPE("") "|" REGEX_CLASS
#define REGEX_ASSERTION "[|^$]|\\\\[bB]"
#define REGEX_WITH(group) "(?:(?:" REGEX_ATOM group ")" REGEX_QUANTIFIER "|" REGEX_ASSERTION ")*"
#define REGEX_GROUP(inside) "|\\((?:\\?:)?" inside "\\)"
#define REGEX_NESTED REGEX_WITH(REGEX_GROUP(REGEX_WITH("")))
#define REGEX                                                                                                   \
  "(?:(?:" REGEX_ATOM REGEX_GROUP(REGEX_NESTED) ")" REGEX_QUANTIFIER "|" REGEX_ASSERTION                        \
  "|\\(\\?[=!]" REGEX_WITH("") "\\))*"

namespace aici::json_schema {
namespace {

constexpr Format kFormats[] = {
    {"date", "^" DATE "$"},
    {"time", "^" TIME "$"},
    {"date-time", "^" DATE "[Tt]" TIME "$"},
    {"duration", "^P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)(?:" DURATION_TIME
                 ")?|" DURATION_TIME ")$"},
    {"email", "^" EMAIL "$"},
    {"idn-email", "^" EMAIL "$"},
    {"hostname", "^" PLAIN_HOSTNAME "$"},
    {"idn-hostname", "^" PLAIN_HOSTNAME "$"},
    {"ipv4", "^" IPV4 "$"},
    {"ipv6", "^" IPV6 "$"},
    {"uri", "^" URI "$"},
    {"iri", "^" URI "$"},
    {"uri-reference", "^(?:" URI "|" RELATIVE ")$"},
    {"iri-reference", "^(?:" URI "|" RELATIVE ")$"},
    {"uri-template", "^(?:[A-Za-z0-9._~!$&()*+,;=:@/?#\\[\\]-]|" PERCENT "|\\{[+#./;?&]?" VARIABLE "(?:," VARIABLE
                     ")*\\})*$"},
    {"uuid", "^" HEX("8") "-" HEX("4") "-" HEX("4") "-" HEX("4") "-" HEX("12") "$"},
    {"json-pointer", "^" POINTER "$"},
    {"relative-json-pointer", "^(?:0|[1-9][0-9]*)(?:#|" POINTER ")$"},
    {"regex", "^" REGEX "$"},
    // formats that are not in JSON Schema but in OpenAPI
    {"int8", "", "-128", "127"},
    {"int16", "", "-32768", "32767"},
    {"int32", "", "-2147483648", "2147483647"},
    {"int64", "", "-9223372036854775808", "9223372036854775807"},
    {"uint8", "", "0", "255"},
    {"uint16", "", "0", "65535"},
    {"uint32", "", "0", "4294967295"},
    {"uint64", "", "0", "18446744073709551615"},
    {"byte", "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
    {"base64url", "^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}(?:==)?|[A-Za-z0-9_-]{3}=?)?$"},
    {"float", ""},
    {"double", ""},
    {"password", ""},
    {"binary", ""},
    // formats of pydantic
    {"uuid1", "^" UUID("1") "$"},
    {"uuid3", "^" UUID("3") "$"},
    {"uuid4", "^" UUID("4") "$"},
    {"uuid5", "^" UUID("5") "$"},
    {"uuid6", "^" UUID("6") "$"},
    {"uuid7", "^" UUID("7") "$"},
    {"uuid8", "^" UUID("8") "$"},
    {"ipvanyaddress", "^(?:" IPV4 "|" IPV6 ")$"},
    {"path", ""},
};

/// Shorter names are too often names of their own that differ from a known one in one letter, such as `url`.
constexpr std::size_t kMinToCompare = 6;

/// Returns the letters and digits of a name, in lower case.
std::string letters(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c >= 'A' && c <= 'Z')
      out += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out += c;
  return out;
}

bool has_digit(std::string_view text) { return text.find_first_of("0123456789") != std::string_view::npos; }

/// Returns whether one letter is replaced, missing or added, or two neighbours are exchanged.
bool one_apart(std::string_view a, std::string_view b) {
  if (a.size() < b.size()) std::swap(a, b);
  if (a.size() > b.size() + 1) return false;
  std::size_t at = 0;
  while (at < b.size() && a[at] == b[at]) at++;
  const std::string_view rest = a.substr(at), other = b.substr(at);
  if (a.size() > b.size()) return rest.substr(1) == other;
  if (rest.size() < 2) return true;
  return rest.substr(1) == other.substr(1) ||
         (rest[0] == other[1] && rest[1] == other[0] && rest.substr(2) == other.substr(2));
}

}  // namespace

const Format* find_format(std::string_view name) {
  for (const Format& format : kFormats)
    if (format.name == name) return &format;
  return nullptr;
}

std::string_view similar_format(std::string_view name) {
  const std::string given = letters(name);
  for (const Format& format : kFormats) {
    const std::string known = letters(format.name);
    if (given == known) return format.name;
    const bool comparable = given.size() >= kMinToCompare && !has_digit(given) && !has_digit(known);
    if (comparable && one_apart(given, known)) return format.name;
  }
  return {};
}

}  // namespace aici::json_schema
