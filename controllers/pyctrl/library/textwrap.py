# textwrap: dedent and indent.


def dedent(text):
    lines = text.split("\n")
    margin = None
    for i, line in enumerate(lines):
        inside = line.lstrip(" \t")
        if not inside:
            lines[i] = ""
            continue
        here = line[: len(line) - len(inside)]
        if margin is None:
            margin = here
        while not here.startswith(margin):
            margin = margin[:-1]
    if margin:
        lines = [line[len(margin) :] for line in lines]
    return "\n".join(lines)


def indent(text, prefix, predicate=None):
    made = ""
    for line in text.splitlines(True):
        if predicate(line) if predicate else line.strip():
            made += prefix
        made += line
    return made
