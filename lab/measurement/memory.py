"""Memory of processes, and of sequences: by how much each makes the private memory of the process grow."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from aicirt.contract.abi import ROW_BITMASK
from aicirt.worker.sequence import Sequence as Guest
from aicirt.worker.templates import Template
from lab.measurement.local_worker import LocalWorker


def kib_of_each(
    worker: LocalWorker, template: Template, tokens: Sequence[int], count: int = 32
) -> tuple[float, float]:
    """Returns the KiB of private memory, and of page tables, of each sequence after some tokens.

    `count`: the number of sequences that are measured, after as many others.
    """
    # the first sequences reuse memory that was freed before
    seqs = [walked(worker, template, tokens) for _ in range(count)]
    gc.collect()
    unique, mapped = unique_kib(), page_table_kib()
    seqs += [walked(worker, template, tokens) for _ in range(count)]
    kib = (unique_kib() - unique) / count, (page_table_kib() - mapped) / count
    worker.free(seqs)
    return kib


def walked(worker: LocalWorker, template: Template, tokens: Iterable[int]) -> Guest:
    """Returns a new sequence after some tokens."""
    seq = worker.start(template)
    news: tuple[int, ...] = ()
    for token in (*tokens, None):
        mask = worker.mask(seq, news, sampled=bool(news))
        if mask.row is not None and mask.row.kind == ROW_BITMASK:
            worker.row(mask.row)
        if token is not None:
            news = (token,)
    return seq


def unique_kib() -> int:
    """Returns the KiB of memory of this process that no other process maps."""
    fields = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(kib) for kib in re.findall(r"^Private_(?:Clean|Dirty): +(\d+) kB", fields, re.MULTILINE))


def resident_kib(pid: int) -> int:
    """Returns the KiB of memory that a process maps and that is not swapped out (resident set)."""
    (found,) = re.findall(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found)


def page_table_kib() -> int:
    """Returns the KiB of page tables of this process."""
    (found,) = re.findall(r"^VmPTE:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found)
