"""PPL-MCTS: for each token, a tree search that weighs the model's likelihood against a judge of the text.

PPL-MCTS: Constrained Textual Generation Through Discriminator-Guided MCTS Decoding (2021, arXiv 2109.13582).
A round goes down the tree by PUCT, gives the node that it reaches the likeliest tokens as children, lets the
model write on, and has the result judged. The token of the child with most rounds is written, and its part of
the tree is kept. There, a classifier judges. Here, the model itself does: the script asks a question about
the text, and the value is the probability of "yes" against that of "no". The model writes on greedily.

Prompt: Write a sentence about the weather.
Argument: {"question": " Is this cheerful?", "tokens": 5, "rounds": 8, "width": 4, "ahead": 2, "weight": 3.0}
"""

import json
import math

from aici import arg, backtrack, distribution, eos_tokens, force, gen, label, likely, set_var, tokenize

END = eos_tokens()
YES, NO = [tokenize(arg.get(answer, " " + answer))[0] for answer in ("yes", "no")]


class Node:
    def __init__(self, prior):
        self.prior, self.visits, self.total, self.children = prior, 0, 0.0, {}

    def bound(self, token):
        # the mean value of a child, and a bonus for what is likely and was tried less often
        child = self.children[token]
        mean = child.total / child.visits if child.visits else 0.0
        return mean + arg["weight"] * child.prior * math.sqrt(self.visits) / (1 + child.visits)


async def judge():
    await force(arg["question"])
    logits = (await distribution()).logits
    return 1 / (1 + math.exp(logits[NO] - logits[YES]))


async def search(root):
    start, path, tokens = label(), [root], []
    while path[-1].children:
        tokens.append(max(path[-1].children, key=path[-1].bound))
        path.append(path[-1].children[tokens[-1]])
    if tokens and tokens[-1] in END:
        await force(tokens[:-1])
    else:
        await force(tokens)
        path[-1].children = {token: Node(math.exp(logprob)) for token, logprob in await likely(arg["width"])}
        await gen(max_tokens=arg["ahead"], temperature=0)
    value = await judge()
    for node in path:
        node.visits += 1
        node.total += value
    await backtrack(start)


async def main():
    root, values = Node(1.0), []
    for _ in range(arg["tokens"]):
        for _ in range(arg["rounds"]):
            await search(root)
        token, root = max(root.children.items(), key=lambda pair: pair[1].visits)
        values.append(root.total / root.visits)
        if token in END:
            break
        await force([token])
    set_var("values", json.dumps(values))
