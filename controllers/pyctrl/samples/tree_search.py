"""Monte-Carlo tree search: rounds of choosing, trying and scoring find numbers with a given sum.

This is UCT (Kocsis and Szepesvari, 2006), with the model as the policy of expansion and simulation. Methods
such as LATS (arXiv 2310.04406) also have the model value states and reflect on failures, and search over
actions of an agent.

Prompt: Write three numbers from 1 to 9 whose sum is 21.
Argument: {"sum": 21, "rounds": 20}
"""

import math

from aici import arg, backtrack, force, gen, label, set_var

LENGTH, WIDTH = 3, 3
DIGITS = "123456789"


class Node:
    def __init__(self):
        self.visits, self.total, self.children = 0, 0.0, {}


def choose(node):
    # the mean reward, and a bonus for what was tried less often (UCB1)
    def bound(move):
        child = node.children[move]
        return child.total / child.visits + math.sqrt(2 * math.log(node.visits) / child.visits)

    return max(node.children, key=bound)


def reward(moves):
    # where a program outside keeps the score, this is a call
    return 1 / (1 + abs(arg["sum"] - sum([int(move) for move in moves])))


async def propose(moves, digits):
    await force(" + " if moves else "")
    return await gen(choice=list(digits), temperature=2.0)


async def main():
    start, root, best = label(), Node(), (0.0, "")
    for _ in range(arg["rounds"]):
        # selection: the most promising children, as long as a node has all of its own
        path = [root]
        moves: list[str] = []
        while len(path[-1].children) == WIDTH and len(moves) < LENGTH:
            moves.append(choose(path[-1]))
            path.append(path[-1].children[moves[-1]])
        await force(" + ".join(moves))
        # expansion: one new child, by a move that its parent does not have yet
        if len(moves) < LENGTH:
            tried = path[-1].children
            moves.append(await propose(moves, [digit for digit in DIGITS if digit not in tried]))
            path.append(tried.setdefault(moves[-1], Node()))
        # simulation: the model completes the text
        while len(moves) < LENGTH:
            moves.append(await propose(moves, DIGITS))
        # backpropagation
        found = reward(moves)
        for node in path:
            node.visits += 1
            node.total += found
        print(f"{found:.3f}:", *moves)
        best = max(best, (found, " + ".join(moves)))
        await backtrack(start)
    await force(best[1])
    set_var("visits", " ".join([f"{move}:{child.visits}" for move, child in root.children.items()]))
