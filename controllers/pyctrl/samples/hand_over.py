"""Hands a chat over to another agent: each agent is a run with a name, which gets the chat as a message.

The agents share nothing but messages, so each may have another model or other tools. Here all of them run
this script; its argument is the run's name. An agent that was asked already is not asked again.

Prompt: You work in a restaurant. Wait for a guest.
Argument: waiter
"""

from aici import arg, choice, force, gen, receive, regex, send, set_var, user

AGENTS = {
    "waiter": "You are the waiter. You decide who can help the guest.",
    "cook": "You are the cook. You know everything about the food.",
    "cashier": "You are the cashier. You know everything about bills.",
}
ANSWER = regex(r" [A-Z][^\n.]{10,80}\.")


async def main():
    # a chat has what the guest says, and the agents that were asked, this one last; then also the answer
    while (chat := await receive()) is not None:
        if "answer" in chat:
            await force(f"\nThe {chat['asked'][-1]} says:{chat['answer']}")
            set_var("asked", " ".join(chat["asked"]))
            for name in AGENTS:
                await send(name, None)  # the guest leaves
            continue
        asked = chat["asked"] + [arg]
        await user(f"{AGENTS[arg]} The guest says: {chat['guest']}")
        others = [f"to the {name}" for name in AGENTS if name not in asked]
        # the first one only decides who answers; the others may answer, or hand over while somebody is left
        answer = await gen(choice(others + ["Answer:"] * (len(asked) > 1)))
        if answer == "Answer:":
            await send(asked[0], {"asked": asked, "answer": await gen(ANSWER)})
        else:
            await send(answer.split(" ")[-1], {"guest": chat["guest"], "asked": asked})
