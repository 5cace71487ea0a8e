"""An SQL query under a grammar: the database can parse whatever the model writes.

Prompt: Write an SQL query: all titles of the table songs with a year after 1990.
"""

from aici import force, gen, lark

# The grammar lists the columns of the table, so the model cannot name one that does not exist.
QUERY = lark(r"""
start: "SELECT " columns " FROM songs" where? order? ";"
columns: "*" | column (", " column)?
where: " WHERE " condition (" AND " condition)?
condition: "year" (" = " | " > " | " < ") NUMBER | "artist = " STRING
order: " ORDER BY " column (" DESC")?
column: "title" | "artist" | "year"
NUMBER: /[12][0-9]{3}/
STRING: /'[A-Z][a-z]{1,9}( [A-Z][a-z]{1,9})?'/
""")


async def main():
    await force("```sql\n")
    await gen(QUERY, max_tokens=40, store="query")
    await force("\n```")
