"""Learns from failures in words (Reflexion): an attempt is forgotten, but its lesson stays.

A database is the judge: a query must run and find something. In the published method (arXiv 2303.11366) a
model may judge too, an attempt is a whole run of an agent, and the memory keeps the last few lessons, as
here.

Prompt: Write an SQL query for the towns with more than 200000 people. The table towns has name and people.
"""

from aici import CallError, backtrack, call, force, gen, label, regex, set_var

ATTEMPTS, MEMORY = 4, 2
QUERY = regex(" [a-z]{1,12} FROM towns WHERE [a-z]{1,12} [<>] [1-9][0-9]{0,6}")
LESSON = regex(r" [^\n.]{10,80}\.")


async def main():
    start = label()
    lessons: list[str] = []
    for attempt in range(1, ATTEMPTS + 1):
        await force("".join([f"Lesson:{lesson}\n" for lesson in lessons[-MEMORY:]]) + "SELECT")
        query = "SELECT" + await gen(QUERY, temperature=0.3 * attempt)
        try:
            rows = (await call("tools.query", sql=query))["result"]
            outcome = "it finds nothing"
        except CallError as error:
            rows, outcome = [], str(error)
        if rows:
            await backtrack(start)
            await force(f"{query}\n{', '.join([str(row[0]) for row in rows])}")
            set_var("query", query)
            set_var("attempts", str(attempt))
            return
        print(f"{query}: {outcome}")
        await force(f"\nThis query is wrong: {outcome}.\nLesson:")
        lessons.append(await gen(LESSON))
        # the next attempt does not see this one, only what the model has learned from it
        await backtrack(start)
    await force("I give up.")
    set_var("lessons", "".join(lessons))
