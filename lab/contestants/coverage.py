"""Coverage of the schemas of MaskBench by our engine alone: all texts of each, and the work that they take.

Work is counted in fuel, so that the worst schemas are the same ones on every machine.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from lab.contestants.mask_figures import reason_group
from lab.contestants.schema_engine import fuel_engine
from lab.inputs.maskbench import BrokenFile, Case, read_case
from lab.measurement.child import Child, ChildError
from lab.report import Report

#: s of processor time: masks with fuel take about twice as long
_COMPILE_S, _WALK_S = 120.0, 120.0
_MAX_TEXT = 1000
#: schemas that take the most work are named, and causes of refusals
_WORST, _CAUSES = 10, 40
#: percent of schemas that pass: in the written order, and with members in any order
PASS_PCT, PASS_ANY_ORDER_PCT = 97.5, 99.5
#: valid texts that are refused in whatever order
REFUSED_TEXTS = 10


def cover(case: Case, engine: Child) -> dict[str, Any]:
    """Compiles a schema and walks along all of its texts. Returns what was found, for JSON.

    "refused" is the reason of a refusal, and "failed" that of an engine that died or took too long. "narrow"
    are valid texts that are refused, "wide" invalid ones that are allowed, each with whether `"order": "any"`
    allows it. "compile" and "mask" are the fuel of the compilation and of the worst mask.
    """
    found: dict[str, Any] = {"name": case.name, "texts": len(case.valid) + len(case.invalid)}
    try:
        compiled = engine.call("compile", case.schema, seconds=_COMPILE_S)
        if "refused" in compiled:
            return found | {"refused": compiled["refused"]}
        found["compile"], found["mask"], found["masks"] = compiled["fuel"], 0, 0
        wrong: dict[str, list[str]] = {"narrow": [], "wide": []}
        for text, valid in [
            *((text, True) for text in case.valid),
            *((text, False) for text in case.invalid),
        ]:
            walk = engine.call("walk", text, seconds=_WALK_S)
            if "error" in walk:
                return found | {"failed": walk["error"]}
            found["mask"] = max(found["mask"], *walk["fuel"], 0)
            found["masks"] += len(walk["fuel"])
            if walk["taken"] != valid:
                wrong["narrow" if valid else "wide"].append(text)
        if any(wrong.values()):
            engine.call("compile", {"schema": case.schema, "order": "any"}, seconds=_COMPILE_S)
            for name, texts in wrong.items():
                taken = [engine.call("walk", text, seconds=_WALK_S)["taken"] for text in texts]
                found[name] = [[text[:_MAX_TEXT], any_] for text, any_ in zip(texts, taken, strict=True)]
    except ChildError as error:
        found["failed"] = str(error)
    return found


def cover_all(paths: Sequence[Path], size: str, jobs: int) -> Iterator[dict[str, Any] | BrokenFile]:
    """Covers files in so many processes at once. Yields results as they come."""
    engines: queue.SimpleQueue[Child] = queue.SimpleQueue()

    def one(path: Path) -> dict[str, Any] | BrokenFile:
        engine = engines.get()
        try:
            return cover(read_case(path), engine)
        except BrokenFile as error:
            return error
        finally:
            engines.put(engine)

    with ExitStack() as stack:
        for _ in range(jobs):
            engines.put(stack.enter_context(closing(Child(fuel_engine, size))))
        pool = ThreadPoolExecutor(jobs)
        stack.callback(pool.shutdown, cancel_futures=True)
        for done in as_completed([pool.submit(one, path) for path in paths]):
            yield done.result()


def passes(found: Mapping[str, Any], *, any_order: bool = False) -> bool:
    """Returns whether a schema passes as MaskBench counts: every text is judged right."""
    wrong = [*found.get("narrow", ()), *([text, not any_] for text, any_ in found.get("wide", ()))]
    return not ("refused" in found or "failed" in found) and all(any_order and right for _, right in wrong)


def report_coverage(report: Report, results: Iterable[Mapping[str, Any]]) -> None:
    """Adds the figures of all results, a table of causes, and all that is wrong."""
    found = list(results)
    count = max(len(found), 1)
    narrow = [(its["name"], *text) for its in found for text in its.get("narrow", ())]
    in_no_order = [text for text in narrow if not text[-1]]
    refusals = {its["name"]: its["refused"] for its in found if "refused" in its}
    failures = {its["name"]: its["failed"] for its in found if "failed" in its}
    wide = {its["name"]: its["wide"] for its in found if its.get("wide")}
    report.figure("maskbench.all.schemas", len(found), "schemas")
    report.figure("maskbench.all.texts", sum(its["texts"] for its in found), "texts")
    report.figure("maskbench.all.masks", sum(its.get("masks", 0) for its in found), "masks")
    report.figure("maskbench.all.refused", len(refusals), "schemas")
    report.figure("maskbench.all.failed", len(failures), "schemas", target=0)
    report.figure("maskbench.all.valid_refused", len(narrow), "texts")
    report.figure("maskbench.all.valid_refused_any_order", len(in_no_order), "texts", target=REFUSED_TEXTS)
    report.figure("maskbench.all.invalid_accepted", len(wide), "schemas", target=0)
    for name in ("compile", "mask"):
        worst = sorted((its for its in found if name in its), key=lambda its: -its[name])[:_WORST]
        report.details[f"worst_{name}"] = {its["name"]: its[name] for its in worst}
        report.figure(f"maskbench.all.worst_{name}_fuel", worst[0][name] if worst else 0, "units")
    passed, any_ = (
        100 * sum(passes(its, any_order=any_order) for its in found) / count for any_order in (0, 1)
    )
    report.figure("maskbench.all.pass_pct", passed, "%")
    report.figure("maskbench.all.pass_any_order_pct", any_, "%")
    report.details |= {
        "targets": {"pass_pct": PASS_PCT, "pass_any_order_pct": PASS_ANY_ORDER_PCT},
        "causes": dict(Counter(map(reason_group, refusals.values())).most_common(_CAUSES)),
        "refused": refusals,
        "failed": failures,
        "invalid_accepted": wide,
        "valid_refused": narrow,
    }
