// Arithmetic as in Python: numbers, names, calls, and operators with their precedences.

%left "+" "-"
%left "*" "/" "//" "%"
%precedence SIGN
%right "**"

// looks like a number and is none: `1a` is not 1 and a name
%token NO_NUMBER

%start expression
%%

SKIP: "/[ \t]+/" ;

expression
    : expression "+" expression
    | expression "-" expression
    | expression "*" expression
    | expression "/" expression
    | expression "//" expression
    | expression "%" expression
    | expression "**" expression
    | "+" expression %prec SIGN
    | "-" expression %prec SIGN
    | operand
    ;

operand
    : NUMBER
    | NAME
    | "(" expression ")"
    | operand "(" ")"
    | operand "(" arguments ")"
    | operand "(" arguments "," ")"
    ;

arguments: expression | arguments "," expression ;

NUMBER: "/0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0+|[1-9][0-9]*|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+\-]?[0-9]+)?|[0-9]+[eE][+\-]?[0-9]+/" ;
NO_NUMBER: "/[0-9.]+[a-zA-Z_0-9.]*/" ;
NAME: "/[a-zA-Z_][a-zA-Z_0-9]*/" ;
