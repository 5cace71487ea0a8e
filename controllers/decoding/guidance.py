"""Guidance: strengthens what a context adds, by the difference to the model without it, or with another one.

Trusting Your Evidence: Hallucinate Less with Context-aware Decoding (2023, arXiv 2305.14739), and
classifier-free guidance, Stay on topic with Classifier-Free Guidance (2023, arXiv 2306.17806), whose strength
is 1 + alpha. A fork has the question without the context, or with the text `instead`, a negative prompt. Its
logits count -alpha times, and those of this sequence 1 + alpha times. The papers do the same; here, the
prompt of the request is part of both texts.

Prompt: Answer in one sentence.
Argument: {"context": "The sky was green that day. ", "question": "What colour was the sky?", "alpha": 0.5}
"""

from aici import arg, force, gen, label, mix, set_var

CONTEXT, QUESTION = arg["context"], arg["question"]


async def main():
    start = label()
    await force(CONTEXT + QUESTION)

    async def without():
        await force(arg.get("instead", "") + QUESTION, after=start)

    await mix(without, weight=-arg["alpha"])
    set_var("answer", await gen(max_tokens=arg.get("tokens", 30), stop="\n"))
