// SELECT, in the dialect of SQLite as far as others have it too. The words of the language are no names here; where one
// is needed as a name it stands in quotes. Upper and lower case are the same.

%left OR
%left AND
%right NOT
%left "&" "|" "<<" ">>"
%left "+" "-"
%left "*" "/" "%"
%left "||"
%left COLLATE
%precedence SIGN

// looks like a number and is none
%token NO_NUMBER

%start text
%%

SKIP: "/[ \t\r\n\f]+/" | "/--[^\n]*/" | "//\*[^*]*\*+([^*/][^*]*\*+)*//" ;

text: query | query ";" ;

query: WITH tables body order limit | WITH RECURSIVE tables body order limit | body order limit ;
tables: table | tables "," table ;
table: name AS "(" query ")" | name "(" names ")" AS "(" query ")" ;
names: name | names "," name ;

body: core | body set_operator core ;
set_operator: UNION | UNION ALL | INTERSECT | EXCEPT ;

core
    : SELECT choice columns
    | SELECT choice columns FROM source where group
    | VALUES rows
    ;
choice: %empty | DISTINCT | ALL ;
columns: column | columns "," column ;
column: "*" | name "." "*" | expression | expression name | expression AS name ;
rows: "(" expressions ")" | rows "," "(" expressions ")" ;

source: relation | source "," relation | source join relation condition ;
relation
    : name alias
    | name "." name alias
    | "(" query ")" alias
    | "(" source ")"
    ;
alias: %empty | name | AS name ;
join
    : JOIN
    | INNER JOIN
    | CROSS JOIN
    | LEFT outer JOIN
    | NATURAL JOIN
    | NATURAL INNER JOIN
    | NATURAL LEFT outer JOIN
    ;
outer: %empty | OUTER ;
condition: %empty | ON expression | USING "(" names ")" ;

where: %empty | WHERE expression ;
group: %empty | GROUP BY expressions | GROUP BY expressions HAVING expression ;
order: %empty | ORDER BY terms ;
terms: term | terms "," term ;
term: expression | expression direction ;
direction: ASC | DESC ;
limit: %empty | LIMIT expression | LIMIT expression OFFSET expression ;

expressions: expression | expressions "," expression ;
expression
    : expression OR expression
    | expression AND expression
    | NOT expression
    | predicate
    ;

predicate
    : value
    | predicate comparison value
    | predicate IS value
    | predicate IS NOT value
    | predicate not LIKE value
    | predicate not LIKE value ESCAPE value
    | predicate not BETWEEN value AND value
    | predicate not IN "(" ")"
    | predicate not IN "(" expressions ")"
    | predicate not IN "(" query ")"
    | predicate ISNULL
    | predicate NOTNULL
    ;
not: %empty | NOT ;
comparison: "=" | "==" | "<>" | "!=" | "<" | "<=" | ">" | ">=" ;

value
    : value "||" value
    | value "*" value
    | value "/" value
    | value "%" value
    | value "+" value
    | value "-" value
    | value "&" value
    | value "|" value
    | value "<<" value
    | value ">>" value
    | value COLLATE name
    | "-" value %prec SIGN
    | "+" value %prec SIGN
    | "~" value %prec SIGN
    | operand
    ;

operand
    : NUMBER
    | STRING
    | BLOB
    | NULL
    | PARAMETER
    | name
    | name "." name
    | name "." name "." name
    | name "(" ")"
    | name "(" "*" ")"
    | name "(" expressions ")"
    | name "(" DISTINCT expression ")"
    | CAST "(" expression AS name ")"
    | CASE cases END
    | CASE cases ELSE expression END
    | CASE expression cases END
    | CASE expression cases ELSE expression END
    | EXISTS "(" query ")"
    | "(" query ")"
    | "(" expression ")"
    ;
cases: one_case | cases one_case ;
one_case: WHEN expression THEN expression ;

name: NAME | QUOTED ;

SELECT: "/(?i:select)/" ; DISTINCT: "/(?i:distinct)/" ; ALL: "/(?i:all)/" ; FROM: "/(?i:from)/" ;
WHERE: "/(?i:where)/" ; GROUP: "/(?i:group)/" ; BY: "/(?i:by)/" ; HAVING: "/(?i:having)/" ; ORDER: "/(?i:order)/" ;
ASC: "/(?i:asc)/" ; DESC: "/(?i:desc)/" ; LIMIT: "/(?i:limit)/" ; OFFSET: "/(?i:offset)/" ; AS: "/(?i:as)/" ;
WITH: "/(?i:with)/" ; RECURSIVE: "/(?i:recursive)/" ; VALUES: "/(?i:values)/" ; UNION: "/(?i:union)/" ;
INTERSECT: "/(?i:intersect)/" ; EXCEPT: "/(?i:except)/" ; JOIN: "/(?i:join)/" ; INNER: "/(?i:inner)/" ;
CROSS: "/(?i:cross)/" ; LEFT: "/(?i:left)/" ; OUTER: "/(?i:outer)/" ; NATURAL: "/(?i:natural)/" ; ON: "/(?i:on)/" ;
USING: "/(?i:using)/" ; OR: "/(?i:or)/" ; AND: "/(?i:and)/" ; NOT: "/(?i:not)/" ; IS: "/(?i:is)/" ; IN: "/(?i:in)/" ;
LIKE: "/(?i:like)/" ; ESCAPE: "/(?i:escape)/" ; BETWEEN: "/(?i:between)/" ; ISNULL: "/(?i:isnull)/" ;
NOTNULL: "/(?i:notnull)/" ; COLLATE: "/(?i:collate)/" ; NULL: "/(?i:null)/" ; CAST: "/(?i:cast)/" ;
CASE: "/(?i:case)/" ; WHEN: "/(?i:when)/" ; THEN: "/(?i:then)/" ; ELSE: "/(?i:else)/" ; END: "/(?i:end)/" ;
EXISTS: "/(?i:exists)/" ;

NUMBER: "/([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?|0[xX][0-9a-fA-F]+/" ;
NO_NUMBER: "/([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?)?[a-zA-Z_0-9$]+/" ;
STRING: "/'([^']|'')*'/" ;
BLOB: "/[xX]'([0-9a-fA-F]{2})*'/" ;
PARAMETER: "/\?[0-9]*|[:@$][a-zA-Z_][a-zA-Z_0-9]*/" ;
QUOTED: '/"([^"]|"")*"|`([^`]|``)*`|\[[^\]]*\]/' ;
NAME: "/[a-zA-Z_][a-zA-Z_0-9]*/" ;
