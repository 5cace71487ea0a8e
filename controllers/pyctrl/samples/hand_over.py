"""Hands a chat over to another agent: the next turn has another system prompt and other rules.

Frameworks such as Swarm give each agent tools and a model of its own. Here all agents are one model in one
run, and an agent sees everything that was said before. An agent that was asked already is not asked again.

Prompt: My soup is cold, and the bill is wrong.
"""

from aici import gen, options, regex, set_var, system

AGENTS = {
    "waiter": "You are the waiter. You decide who can help the guest.",
    "cook": "You are the cook. You know everything about the food.",
    "cashier": "You are the cashier. You know everything about bills.",
}
ANSWER = regex(r" [A-Z][^\n.]{10,80}\.")


async def main():
    asked = ["waiter"]
    # the prompt has no system message of ours, so the first agent gets its own here
    await system(AGENTS["waiter"])
    while True:
        others = [f"to the {name}" for name in AGENTS if name not in asked]
        # the waiter only decides who answers; the others may answer, or hand over while somebody is left
        choice = await gen(options(others + ["Answer:"] * (len(asked) > 1)))
        if choice == "Answer:":
            break
        asked.append(choice.split(" ")[-1])
        await system(AGENTS[asked[-1]])
    await gen(ANSWER)
    set_var("asked", " ".join(asked))
