"""Beam search: keeps the three likeliest continuations until the best complete text is found.

Prompt: Write one short sentence about the sea.
"""

from aici import TokenSet, backtrack, force, fork, get_var, label, sample, set_var, stop, text, wait

WIDTH = 3
LENGTH = 8
TEXT = TokenSet.text()  # only text, so the answer does not end before LENGTH tokens


async def main():
    start = label()
    me, score = "", 0.0
    beams = [""]  # a beam's name is its path: "01" is the second child of the first child
    for _ in range(LENGTH):
        # the two likeliest tokens here; a fork tries each of them
        here = label()
        best = (await sample(TEXT, temperature=0.01, top_logprobs=2)).top_logprobs
        await backtrack(here)
        child = await fork(2)
        token, logprob = best[child]
        await force([token])
        me, score = me + str(child), score + logprob
        set_var("beam" + me, str(score))

        # all forks share their scores, so all of them select the same three
        children = [beam + end for beam in beams for end in "01"]
        scores = await wait(*["beam" + beam for beam in children])
        # (the zip of MicroPython has no argument strict)
        of = {beam: float(score) for beam, score in zip(children, scores)}  # noqa: B905
        beams = sorted(children, key=lambda beam: -of[beam])[:WIDTH]
        if me not in beams:
            break
    if me == beams[0]:
        set_var("best", text())
    # the first sequence has to return the answer, so it takes over the winner's text
    if "1" in me:
        stop()
    await wait("best")
    await backtrack(start)
    await force(get_var("best"))
