// C as ISO/IEC 9899:2018 has it, with the extensions of GNU C that headers and system sources need.
//
// What is read is text before or after the preprocessor. Directives are skipped like blanks, with their continuation
// lines and comments; macros are not replaced, so a text whose macros are no expressions, types or statements of their
// own is refused. All parts between #if and #endif are read.
//
// Names of types. C cannot be parsed without knowing which names typedef has made. Here nobody keeps a table of them:
// a name may be a type wherever the shape of the text makes it one.
//   - In front of a declaration at file scope, of a member and of a parameter a name is always a type.
//   - In a block `a b` begins a declaration, and so do `a const` and `static a`. `a * b` is read as an expression, which
//     may go on with `= initializer` like the declaration of a pointer. `a (b)` is a call.
//   - `( a )` is an operand; what follows it makes it a cast: another operand, or a parenthesis. `( a * )`, `( a const )`,
//     `( a [] )` and `( a (*)(...) )` are types.
// So no text is refused because of what a name means, except one: a block cannot begin a declaration of pointers to
// functions, `a (*b)(int);`, with a name alone. And texts are accepted that a compiler refuses later, for what their
// names mean or since types do not fit.
//
// Not there: trigraphs, functions without a type, backslashes at line ends inside of names and numbers, C23.

// Where two readings are possible; the loosest first.
%precedence UNLIKELY
%precedence "else"                                  // belongs to the last `if`
%precedence ")"                                     // `( a )` is an operand of its own, of which casts can be made
%precedence "*" "&" "+" "-" "++" "--" "&&"          // `(a) * b`, `(a)++` and such are no casts
%precedence OPERAND
%precedence "("                                     // `(a) (b)` is one
%precedence IDENTIFIER "__extension__"              // `__extension__ a` in a block begins an expression
// `int (a)` as a parameter declares a; attributes before parameters in the old style belong to what is before them
%expect 4

%token NO_CONSTANT
%start text
%%

SKIP
    : "/[ \t\v\f\r\n]+/"
    | "/\\\r?\n/"
    | "//\*[^*]*\*+([^*/][^*]*\*+)*//"
    | "///([^\\\n]|\\(.|\r?\n))*/"
    // a directive: after a new line, up to the end of the line that no backslash and no comment continues
    | '/[ \t\v\f\r\n]*\n[ \t\v\f]*#([^\\\n\/"]|\\(.|\r?\n)|"([^\\\n"]|\\(.|\r?\n))*"|\/\*[^*]*\*+([^*\/][^*]*\*+)*\/|\/([^\\\n\/"*]|\\(.|\r?\n)|"([^\\\n"]|\\(.|\r?\n))*"))*(\/|"([^\\\n"]|\\(.|\r?\n))*|\/\/([^\\\n]|\\(.|\r?\n))*)?/'
    ;

// the same before the first line
DIRECTIVE
    : '/#([^\\\n\/"]|\\(.|\r?\n)|"([^\\\n"]|\\(.|\r?\n))*"|\/\*[^*]*\*+([^*\/][^*]*\*+)*\/|\/([^\\\n\/"*]|\\(.|\r?\n)|"([^\\\n"]|\\(.|\r?\n))*"))*(\/|"([^\\\n"]|\\(.|\r?\n))*|\/\/([^\\\n]|\\(.|\r?\n))*)?/'
    ;

IDENTIFIER: "/([a-zA-Z_$]|[^\x00-\x7F]|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})([0-9a-zA-Z_$]|[^\x00-\x7F]|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})*/" ;

CONSTANT
    : "/([1-9][0-9]*|0[0-7]*|0[xX][0-9a-fA-F]+|0[bB][01]+)([uU](l|L|ll|LL)?|(l|L|ll|LL)[uU]?)?[ij]?/"
    | "/([0-9]*\.[0-9]+|[0-9]+\.)([eE][+\-]?[0-9]+)?([fFlLqQ]|[fFdD](16|32|64|128)x?)?[ij]?/"
    | "/[0-9]+[eE][+\-]?[0-9]+([fFlLqQ]|[fFdD](16|32|64|128)x?)?[ij]?/"
    | "/0[xX]([0-9a-fA-F]*\.[0-9a-fA-F]+|[0-9a-fA-F]+\.?)[pP][+\-]?[0-9]+([fFlLqQ]|[fFdD](16|32|64|128)x?)?[ij]?/"
    | "/([LuU]|u8)?'([^'\\\n]|\\(['\"?\\abefnrtv0-7\n]|\r\n|x[0-9a-fA-F]|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}))+'/"
    ;

// begins like a number and is none: what the preprocessor would take for one
NO_CONSTANT: "/\.?[0-9]([0-9a-zA-Z_.]|[eEpP][+\-])*/" ;

STRING: '/([LuU]|u8)?"([^"\\\n]|\\([\'"?\\abefnrtv0-7\n]|\r\n|x[0-9a-fA-F]|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}))*"/' ;

// other spellings, and words that stand in the same places

lbrace: "{" | "<%" ;
rbrace: "}" | "%>" ;
lbracket: "[" | "<:" ;
rbracket: "]" | ":>" ;

INFIX: "/" | "%" | "|" | "^" | "<<" | ">>" | "<" | ">" | "<=" | ">=" | "==" | "!=" | "||" ;
ASSIGN: "*=" | "/=" | "%=" | "+=" | "-=" | "<<=" | ">>=" | "&=" | "^=" | "|=" ;
PREFIX: "~" | "!" | "__real__" | "__real" | "__imag__" | "__imag" ;

BASIC_TYPE
    : "void" | "char" | "short" | "int" | "long" | "float" | "double" | "signed" | "unsigned" | "_Bool" | "_Complex"
    | "_Imaginary" | "__signed__" | "__signed" | "__complex__" | "__complex" | "__int128" | "__int128_t" | "__uint128_t"
    | "__float128" | "__float80" | "__bf16" | "_Float16" | "_Float32" | "_Float64" | "_Float128" | "_Float32x"
    | "_Float64x" | "_Decimal32" | "_Decimal64" | "_Decimal128" | "__builtin_va_list" | "__auto_type"
    ;
STORAGE: "typedef" | "extern" | "auto" | "register" | "_Thread_local" | "__thread" ;
INLINE: "_Noreturn" | "inline" | "__inline__" | "__inline" ;
QUALIFIER
    : "const" | "__const__" | "__const" | "volatile" | "__volatile__" | "__volatile" | "restrict" | "__restrict__"
    | "__restrict" | "_Nonnull" | "_Nullable" | "_Null_unspecified"
    ;
STRUCT: "struct" | "union" ;
ALIGNOF: "_Alignof" | "__alignof__" | "__alignof" ;
TYPEOF: "typeof" | "__typeof__" | "__typeof" ;
ASM: "asm" | "__asm__" | "__asm" ;
ATTRIBUTE: "__attribute__" | "__attribute" ;
VA_ARG: "va_arg" | "__builtin_va_arg" | "__builtin_convertvector" ;
OFFSETOF: "offsetof" | "__builtin_offsetof" ;

// expressions

primary
    : CONSTANT
    | strings
    | "(" expression ")"
    | "(" IDENTIFIER ")" %prec OPERAND
    | "(" IDENTIFIER index ")"
    | "(" block ")"
    | "_Generic" "(" assignment "," associations ")"
    | VA_ARG "(" assignment "," type_name ")"
    | OFFSETOF "(" type_name "," member_place ")"
    | "__builtin_types_compatible_p" "(" type_name "," type_name ")"
    ;

strings: STRING | strings STRING ;

associations: association | associations "," association ;
association: type_name ":" assignment | "default" ":" assignment ;

member_place: IDENTIFIER | member_place "." IDENTIFIER | member_place lbracket expression rbracket ;

postfix
    : primary
    | postfix suffix
    | IDENTIFIER suffix
    | "(" IDENTIFIER ")" lbrace initializers rbrace
    | "(" IDENTIFIER index ")" lbrace initializers rbrace
    | "(" type ")" lbrace initializers rbrace
    ;

suffix
    : index %prec UNLIKELY
    | "(" arguments ")"
    | "(" ")"
    | "." IDENTIFIER
    | "->" IDENTIFIER
    | "++"
    | "--"
    ;

index: lbracket expression rbracket ;
arguments: assignment | arguments "," assignment ;

unary
    : postfix
    | "++" unary
    | "++" IDENTIFIER
    | "--" unary
    | "--" IDENTIFIER
    | "*" cast
    | "&" cast
    | "+" cast
    | "-" cast
    | PREFIX cast
    | "__extension__" cast
    | "&&" IDENTIFIER
    | "sizeof" unary
    | "sizeof" IDENTIFIER
    | "sizeof" "(" type ")"
    | ALIGNOF unary
    | ALIGNOF IDENTIFIER
    | ALIGNOF "(" type ")"
    ;

// more than an identifier
operand
    : unary
    | "(" type ")" cast
    | "(" IDENTIFIER ")" cast
    | "(" IDENTIFIER ")" "(" ")"
    ;

cast: operand | IDENTIFIER ;

binary: IDENTIFIER %prec UNLIKELY | longer ;

longer
    : operand
    | IDENTIFIER "*" cast
    | longer "*" cast
    | binary "&" cast
    | binary "+" cast
    | binary "-" cast
    | binary "&&" cast
    | binary INFIX cast
    ;

conditional: binary | binary "?" expression ":" conditional | binary "?" ":" conditional ;

assignment
    : conditional
    | unary "=" assignment
    | IDENTIFIER "=" assignment
    | unary ASSIGN assignment
    | IDENTIFIER ASSIGN assignment
    ;

expression: assignment | expression "," assignment ;

// types, where an expression may be, too

type
    : keyword_type
    | keyword_type abstract_declarator
    | IDENTIFIER stars
    | IDENTIFIER lbracket rbracket
    | IDENTIFIER "(" plain_stars ")" "(" parameters ")"
    | IDENTIFIER "(" plain_stars ")" "(" ")"
    | qualified_name
    | qualified_name abstract_declarator
    ;

qualified_name: IDENTIFIER qualifier | qualified_name qualifier ;

stars: "*" | "*" stars | "*" qualifiers | "*" qualifiers abstract_declarator | "*" arrays ;
plain_stars: "*" | "*" plain_stars ;
arrays: array | arrays array ;

// types, where nothing else may be

type_name
    : member_type
    | member_type abstract_declarator
    ;

// declarations

declarator: direct_declarator | pointer direct_declarator ;
direct_declarator: named_declarator | inner_declarator ;
named_declarator: IDENTIFIER | named_declarator array | named_declarator function ;
inner_declarator: "(" declarator ")" | inner_declarator array | inner_declarator function ;

attributes: attribute | attributes attribute ;
attribute: ATTRIBUTE "(" "(" attribute_items ")" ")" ;
attribute_items: attribute_item | attribute_items "," attribute_item ;
attribute_item: %empty | attribute_name | attribute_name "(" ")" | attribute_name "(" arguments ")" ;
attribute_name: IDENTIFIER | QUALIFIER | INLINE ;

qualifier: QUALIFIER | attribute | "_Atomic" | alignment ;
qualifiers: qualifier | qualifiers qualifier ;
modifier: qualifier | STORAGE | "static" | INLINE | "__extension__" %prec UNLIKELY ;
modifiers: modifier | modifiers modifier ;

alignment: "_Alignas" "(" type ")" | "_Alignas" "(" expression ")" ;

other_type
    : record
    | enumeration
    | TYPEOF "(" expression ")"
    | TYPEOF "(" type ")"
    | "_Atomic" "(" type_name ")"
    ;

// a type with all that may stand beside it: of builtin words, of another keyword, of a name
basic_specifiers
    : BASIC_TYPE
    | modifiers BASIC_TYPE
    | basic_specifiers BASIC_TYPE
    | basic_specifiers modifier
    ;
other_specifiers: other_type | modifiers other_type | other_specifiers modifier ;
modified_name: modifiers IDENTIFIER | modified_name modifier ;
named_specifiers: IDENTIFIER modifier | named_specifiers modifier ;

keyword_specifiers: basic_specifiers | other_specifiers | modified_name ;
specifiers: keyword_specifiers | IDENTIFIER | named_specifiers ;

// the same without storage classes
basic_member_type
    : BASIC_TYPE
    | qualifiers BASIC_TYPE
    | basic_member_type BASIC_TYPE
    | basic_member_type qualifier
    ;
other_member_type: other_type | qualifiers other_type | other_member_type qualifier ;
qualified_member_name: qualifiers IDENTIFIER | qualified_member_name qualifier ;

keyword_type: basic_member_type | other_member_type | qualified_member_name ;
member_type: keyword_type | IDENTIFIER | qualified_name ;

record_head: STRUCT | record_head attribute ;
record
    : record_head IDENTIFIER
    | record_head lbrace members rbrace
    | record_head IDENTIFIER lbrace members rbrace
    ;
members: %empty | members member ;
member
    : member_type ";"
    | member_type member_declarators ";"
    | "__extension__" member
    | static_assertion
    | ";"
    ;
member_declarators: member_declarator | member_declarators "," member_declarator ;
member_declarator
    : declarator
    | declarator attributes
    | ":" conditional
    | ":" conditional attributes
    | declarator ":" conditional
    | declarator ":" conditional attributes
    ;

enumeration_head: "enum" | enumeration_head attribute ;
enumeration
    : enumeration_head IDENTIFIER
    | enumeration_head lbrace enumerators comma rbrace
    | enumeration_head IDENTIFIER lbrace enumerators comma rbrace
    ;
enumerators: enumerator | enumerators "," enumerator ;
enumerator: enumerator_name | enumerator_name "=" conditional ;
enumerator_name: IDENTIFIER | enumerator_name attribute ;
comma: %empty | "," ;

static_assertion
    : "_Static_assert" "(" conditional "," strings ")" ";"
    | "_Static_assert" "(" conditional ")" ";"
    ;

pointer: "*" | "*" qualifiers | "*" pointer | "*" qualifiers pointer ;

array
    : lbracket rbracket
    | lbracket "*" rbracket
    | lbracket qualifiers "*" rbracket
    | lbracket assignment rbracket
    | lbracket qualifiers rbracket
    | lbracket qualifiers assignment rbracket
    | lbracket "static" assignment rbracket
    | lbracket "static" qualifiers assignment rbracket
    | lbracket qualifiers "static" assignment rbracket
    ;
function: "(" parameters ")" | "(" ")" ;

parameters: parameter_list | parameter_list "," "..." ;
parameter_list: parameter | parameter_list "," parameter ;
parameter
    : specifiers
    | specifiers declarator
    | specifiers declarator attributes
    | specifiers abstract_declarator
    ;

abstract_declarator: pointer | direct_abstract_declarator | pointer direct_abstract_declarator ;
direct_abstract_declarator
    : "(" abstract_declarator ")"
    | array
    | function
    | direct_abstract_declarator array
    | direct_abstract_declarator function
    ;

declarator_end: asm_name | attributes | asm_name attributes ;
asm_name: ASM "(" strings ")" ;

declared: declarator | declarator declarator_end ;
declared_first: named_declarator | named_declarator declarator_end ;

init_declarators: init_declarator | init_declarators "," init_declarator ;
init_declarator: declared | declared "=" initializer ;
init_declarators_first
    : declared_first
    | declared_first "=" initializer
    | init_declarators_first "," init_declarator
    ;

initializer: assignment | lbrace initializers rbrace ;
initializers: %empty | initializer_list comma ;
initializer_list: initializer_item | initializer_list "," initializer_item ;
initializer_item
    : initializer
    | designators "=" initializer
    | IDENTIFIER ":" initializer
    ;
designators: designator | designators designator ;
designator
    : lbracket conditional rbracket
    | lbracket conditional "..." conditional rbracket
    | "." IDENTIFIER
    ;

// in a block
declaration
    : keyword_specifiers ";"
    | keyword_specifiers init_declarators ";"
    | named_specifiers ";"
    | named_specifiers init_declarators ";"
    | IDENTIFIER init_declarators_first ";"
    | pointer_declarators ";"
    | modifiers ";"
    | static_assertion
    ;

// that an expression begins in the same way
pointer_declarators
    : IDENTIFIER "*" cast "=" initializer
    | IDENTIFIER "*" IDENTIFIER lbracket rbracket "=" initializer
    | IDENTIFIER "*" qualified_declarator
    | IDENTIFIER "*" qualified_declarator "=" initializer
    | pointer_declarators "," init_declarator
    ;
qualified_declarator: qualifiers declared | "*" qualified_declarator ;

// statements

block: lbrace rbrace | lbrace items rbrace ;
items: item | items item ;
item: declaration | statement | "__label__" labels ";" ;
labels: IDENTIFIER | labels "," IDENTIFIER ;

statement
    : IDENTIFIER ":" statement
    | IDENTIFIER ":" attributes statement
    | "case" conditional ":" statement
    | "case" conditional "..." conditional ":" statement
    | "default" ":" statement
    | block
    | ";"
    | expression ";"
    | "if" "(" expression ")" statement %prec UNLIKELY
    | "if" "(" expression ")" statement "else" statement
    | "switch" "(" expression ")" statement
    | "while" "(" expression ")" statement
    | "do" statement "while" "(" expression ")" ";"
    | "for" "(" for_begin expression ";" ")" statement
    | "for" "(" for_begin expression ";" expression ")" statement
    | "for" "(" for_begin ";" ")" statement
    | "for" "(" for_begin ";" expression ")" statement
    | "goto" IDENTIFIER ";"
    | "goto" "*" expression ";"
    | "continue" ";"
    | "break" ";"
    | "return" ";"
    | "return" expression ";"
    | assembly ";"
    ;
for_begin: ";" | expression ";" | declaration ;

assembly
    : ASM "(" strings asm_operands ")"
    | ASM asm_qualifiers "(" strings asm_operands ")"
    ;
asm_qualifiers: asm_qualifier | asm_qualifiers asm_qualifier ;
asm_qualifier: QUALIFIER | INLINE | "goto" ;
asm_operands
    : %empty
    | asm_operands ":"
    | asm_operands ":" asm_list
    ;
asm_list: asm_operand | asm_list "," asm_operand ;
asm_operand
    : strings
    | strings "(" expression ")"
    | lbracket IDENTIFIER rbracket strings "(" expression ")"
    | IDENTIFIER
    ;

// the text

text: %empty | parts | DIRECTIVE | DIRECTIVE parts ;
parts: part | parts part ;
part
    : specifiers ";"
    | specifiers init_declarators ";"
    | specifiers declarator block
    | specifiers declarator parameter_declarations block
    | modifiers ";"
    | static_assertion
    | assembly ";"
    | ";"
    ;
// as they were before prototypes
parameter_declarations: parameter_declaration | parameter_declarations parameter_declaration ;
parameter_declaration: specifiers init_declarators ";" ;
