"""Plans, then executes: the model writes all steps first, and tools carry them out afterwards.

As in ReWOO (arXiv 2305.18323), the steps name results that are not there yet, so the model does not wait
for tools between them. Other methods change the plan when a result is a surprise; here the plan stays as it
is.

Prompt: Anna buys 3 boxes of 12 pens, and 5 more pens. How many pens has she?
"""

from aici import call, force, gen, set_var

STEPS = 3


async def main():
    plan: dict[str, list[str]] = {}
    await force("Plan:")
    for number in range(1, STEPS + 1):
        await force(f"\n#{number}:")
        # a step may use the results of earlier steps, but not of later ones
        value = f"({'|'.join(plan)}|[1-9][0-9]{{0,2}})" if plan else "[1-9][0-9]{0,2}"
        end = "| finish" if plan else ""
        step = (await gen(regex=f" (add|multiply) {value} {value}{end}")).strip()
        if step == "finish":
            break
        plan[f"#{number}"] = step.split(" ")

    results: dict[str, int] = {}

    def known(value):
        return results.get(value) if value[0] == "#" else int(value)

    while len(results) < len(plan):
        calls = {}
        for name, (tool, a, b) in plan.items():
            if name not in results and known(a) is not None and known(b) is not None:
                calls[name] = call(f"tools.{tool}", a=known(a), b=known(b))
        # steps that do not need each other are carried out at the same time
        for name in calls:
            results[name] = (await calls[name])["result"]
            await force(f"\n{name} = {results[name]}")

    await force("\nAnswer:")
    set_var("answer", (await gen(regex=" [0-9]{1,8}")).strip())
