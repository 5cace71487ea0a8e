#include "formats.hpp"

#define DATE                                                                                                       \
  "(?:(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|"    \
  "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|"                                            \
  "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#define DURATION_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define LABEL(most) "[A-Za-z0-9](?:[A-Za-z0-9-]{0," most "}[A-Za-z0-9])?"
// at most 253 characters: three long labels, or eight short ones
#define HOSTNAME "(?:" LABEL("61") "(?:\\." LABEL("61") "){0,2}|" LABEL("28") "(?:\\." LABEL("28") "){0,7})"
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
    // labels with -- there are encoded, and not every code is valid
    {"hostname", "^" HOSTNAME "$", "(?:^|\\.)..--"},
    {"idn-hostname", "^" HOSTNAME "$", "(?:^|\\.)..--"},
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
    // expressions without groups, and only with simple classes
    {"regex", "^\\^?(?:(?:[A-Za-z0-9 _,:;=@/\"'<>#%&!~-]|\\.|\\\\[dDsSwWnrt.*+?()\\[\\]{}^$|/\\\\]|"
              "\\[\\^?(?:[A-Za-z0-9 _.,:;=@]|a-z|A-Z|0-9|\\\\[dDsSwW])+\\])[*+?]?)*\\$?$"},
    // formats that are not in JSON Schema but in OpenAPI
    {"int8", "", "", "-128", "127"},
    {"int16", "", "", "-32768", "32767"},
    {"int32", "", "", "-2147483648", "2147483647"},
    {"int64", "", "", "-9223372036854775808", "9223372036854775807"},
    {"uint8", "", "", "0", "255"},
    {"uint16", "", "", "0", "65535"},
    {"uint32", "", "", "0", "4294967295"},
    {"uint64", "", "", "0", "18446744073709551615"},
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

}  // namespace

const Format* find_format(std::string_view name) {
  for (const Format& format : kFormats)
    if (format.name == name) return &format;
  return nullptr;
}

}  // namespace aici::json_schema
