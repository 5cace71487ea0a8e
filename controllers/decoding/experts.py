"""Experts: adds the difference between a good and a bad example of the model to the model's logits.

DExperts: Decoding-Time Controlled Text Generation with Experts and Anti-Experts (2021, arXiv 2105.03023).
There, the expert and the anti-expert are models of their own, trained on good and on bad texts. Here, both
are the same model after an instruction, in forks whose logits count alpha and -alpha times. The model without
either instruction counts once.

Prompt: Continue the story: The neighbour knocked at the door, and
Argument: {"expert": "Write politely: ", "anti": "Write rudely: ", "begin": "", "alpha": 0.5, "tokens": 30}
"""

from aici import arg, force, gen, mix, set_var

ALPHA = arg["alpha"]


async def expert():
    await force(arg["expert"])


async def anti():
    await force(arg["anti"])


async def main():
    await mix(expert, weight=ALPHA)
    await mix(anti, weight=-ALPHA)
    await force(arg["begin"])
    set_var("text", await gen(max_tokens=arg["tokens"]))
