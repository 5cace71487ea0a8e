// JSON as RFC 8259 has it. Blanks may stand anywhere in any number: where a model shall not write pages of them, make
// SKIP shorter, or leave it out.
%start text
%%

SKIP: "/[ \t\r\n]+/" ;

text: value ;

value: object | array | STRING | NUMBER | "true" | "false" | "null" ;

object: "{" "}" | "{" members "}" ;
members: member | members "," member ;
member: STRING ":" value ;

array: "[" "]" | "[" values "]" ;
values: value | values "," value ;

STRING: '/"([^"\\\x00-\x1F]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/' ;
NUMBER: "/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?/" ;
