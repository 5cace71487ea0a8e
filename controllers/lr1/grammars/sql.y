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
    : SELECT choice columns where group
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

SELECT: "/(?i-u:select)/" ; DISTINCT: "/(?i-u:distinct)/" ; ALL: "/(?i-u:all)/" ; FROM: "/(?i-u:from)/" ;
WHERE: "/(?i-u:where)/" ; GROUP: "/(?i-u:group)/" ; BY: "/(?i-u:by)/" ; HAVING: "/(?i-u:having)/" ;
ORDER: "/(?i-u:order)/" ;
ASC: "/(?i-u:asc)/" ; DESC: "/(?i-u:desc)/" ; LIMIT: "/(?i-u:limit)/" ; OFFSET: "/(?i-u:offset)/" ; AS: "/(?i-u:as)/" ;
WITH: "/(?i-u:with)/" ; RECURSIVE: "/(?i-u:recursive)/" ; VALUES: "/(?i-u:values)/" ; UNION: "/(?i-u:union)/" ;
INTERSECT: "/(?i-u:intersect)/" ; EXCEPT: "/(?i-u:except)/" ; JOIN: "/(?i-u:join)/" ; INNER: "/(?i-u:inner)/" ;
CROSS: "/(?i-u:cross)/" ; LEFT: "/(?i-u:left)/" ; OUTER: "/(?i-u:outer)/" ; NATURAL: "/(?i-u:natural)/" ;
ON: "/(?i-u:on)/" ;
USING: "/(?i-u:using)/" ; OR: "/(?i-u:or)/" ; AND: "/(?i-u:and)/" ; NOT: "/(?i-u:not)/" ; IS: "/(?i-u:is)/" ;
IN: "/(?i-u:in)/" ;
LIKE: "/(?i-u:like)/" ; ESCAPE: "/(?i-u:escape)/" ; BETWEEN: "/(?i-u:between)/" ; ISNULL: "/(?i-u:isnull)/" ;
NOTNULL: "/(?i-u:notnull)/" ; COLLATE: "/(?i-u:collate)/" ; NULL: "/(?i-u:null)/" ; CAST: "/(?i-u:cast)/" ;
CASE: "/(?i-u:case)/" ; WHEN: "/(?i-u:when)/" ; THEN: "/(?i-u:then)/" ; ELSE: "/(?i-u:else)/" ; END: "/(?i-u:end)/" ;
EXISTS: "/(?i-u:exists)/" ;

NUMBER: "/([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?[0-9]+)?|0[xX][0-9a-fA-F]+/" ;
NO_NUMBER: "/([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+\-]?)?[a-zA-Z_0-9$]+/" ;
STRING: "/'([^']|'')*'/" ;
BLOB: "/[xX]'([0-9a-fA-F]{2})*'/" ;
PARAMETER: "/\?[0-9]*|[:@$][a-zA-Z_][a-zA-Z_0-9]*/" ;
QUOTED: '/"([^"]|"")*"|`([^`]|``)*`|\[[^\]]*\]/' ;
NAME: "/[a-zA-Z_][a-zA-Z_0-9]*/" ;
