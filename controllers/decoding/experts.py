"""Experts: adds the difference between a good and a bad example of the model to the model's logits.

DExperts: Decoding-Time Controlled Text Generation with Experts and Anti-Experts (2021, arXiv 2105.03023), and
Tuning Language Models by Proxy (2024, arXiv 2401.08565). The logits of an expert and of an anti-expert count
alpha and -alpha times, and those of the model itself once. There, both are models of their own: small ones
that were trained on good and on bad texts, or one before and after tuning. Here, `models` names two second
models of the engine for them, for example --second tuned=MODEL --second plain=MODEL. Without it, both are the
same model after an instruction.

Prompt: Continue the story: The neighbour knocked at the door, and
Argument: {"expert": "Write politely: ", "anti": "Write rudely: ", "begin": "", "alpha": 0.5, "tokens": 30}
"""

from aici import arg, force, gen, mix, set_var

ALPHA = arg["alpha"]
EXPERT, ANTI = arg.get("models", ["", ""])


async def expert():
    await force(arg.get("expert", ""))


async def anti():
    await force(arg.get("anti", ""))


async def main():
    await mix(expert, weight=ALPHA, model=EXPERT)
    await mix(anti, weight=-ALPHA, model=ANTI)
    await force(arg.get("begin", ""))
    set_var("text", await gen(max_tokens=arg["tokens"]))
