"""`aici top`: shows the state of a daemon once a second."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError, counted
from aicirt.system.terminal import show
from pyaici.cli.command import add_command

_MORE = """
Shows the processes and clients of a running daemon, and counts of forks, late steps and errors by code.
"busy %" is the share of time that a worker spends on sequences; new sequences go to workers with time left.
Rates are averages since the previous screen. Press Ctrl-C to end.
"""
_EXAMPLES = """\
  aici top --socket /run/aici.sock        refreshes once a second
  aici top --once                         prints one screen, for the daemon at $AICI_SOCKET
  aici top --once --json                  prints the whole state as JSON
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "watch a running daemon (aicirt)"
    parser = add_command(commands, "top", run, summary, more=_MORE, examples=_EXAMPLES)
    parser.add_argument("--socket", type=Path, help="socket of a running daemon (default: $AICI_SOCKET)")
    parser.add_argument("--once", action="store_true", help="print one screen and exit")
    parser.add_argument(
        "--json", action="store_true", help="print the daemon's state as lines of JSON instead of screens"
    )
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="time between screens (default: %(default)s)",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError("must be 0.1 to 3600 seconds")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Runs until Ctrl-C or until the daemon ends, which is an error."""
    socket = arguments.socket or os.environ.get("AICI_SOCKET")
    if not socket:
        raise AiciError(
            "no daemon is named: give the socket of a running one with --socket PATH or in AICI_SOCKET; "
            "'aici runtime --socket PATH' starts one"
        )
    from pyaici.client.control import Control

    control = Control(Path(socket))
    before: dict[str, Any] = {}
    try:
        while True:
            health = {**control.call("health"), "time": time.monotonic()}
            if arguments.json:
                print(json.dumps({name: value for name, value in health.items() if name != "time"}))
            else:
                if sys.stdout.isatty() and not arguments.once:
                    print("\x1b[2J\x1b[H", end="")
                show("\n".join(screen(health, before)))
            if arguments.once:
                return 0
            sys.stdout.flush()
            before = health
            time.sleep(arguments.interval)
    finally:
        control.close()


def screen(health: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Returns the screen's lines from the current and the previous reply of the daemon to "health".

    `before` is empty at first. Both replies have their "time" added, in seconds.
    """
    seconds = health["time"] - before["time"] if before else 0.0
    older = {process["pid"]: process for process in _processes(before)} if before else {}
    lines = [
        f"aicirt {health['pid']}: {counted(health['modules'], 'module')}, "
        f"{counted(len(health['clients']), 'client')}, {counted(health['restarts'], 'worker')} replaced",
        *_templates(health),
        "",
        f"{'process':<12} {'pid':>8} {'cpu %':>6} {'busy %':>6} {'MB':>6} {'guests':>6} "
        f"{'sequences':>9} {'steps/s':>8}",
    ]
    for process in _processes(health):
        old = older.get(process["pid"], {})
        cpu = _rate(process, old, "cpu_s", seconds, 100)
        steps = _rate(process, old, "steps", seconds, 1)
        sequences = process.get("sequences", process.get("error", ""))
        busy = f"{100 * process['busy']:.0f}" if "busy" in process else "-"
        memory = f"{process['rss_kib'] / 1000:.0f}" if "rss_kib" in process else "-"
        guests = f"{process['memory']['bytes'] / 1e6:.0f}" if "memory" in process else "-"
        lines.append(
            f"{process['name']:<12} {process['pid']:>8} {cpu:>6} {busy:>6} {memory:>6} {guests:>6} "
            f"{sequences:>9} {steps:>8}"
        )
    lines += ["", f"{'client':<12} {'pid':>8} {'':>27} {'sequences':>9}"]
    for number, client in enumerate(health["clients"]):
        lines.append(f"{number:<12} {client['pid']:>8} {'':>27} {client['sequences']:>9}")
    counters: Counter[str] = Counter(health.get("counters", {}))
    for process in _processes(health):
        counters.update(process.get("counters", {}))
    if counters:
        known = (f"{name} {count}" for name, count in sorted(counters.items()))
        lines += ["", "so far: " + ", ".join(known)]
    return lines


def _templates(health: dict[str, Any]) -> list[str]:
    """Returns a list with a line about the templates and the failures of `aici_warm`."""
    kept = health["templates"]
    line = f"templates: {kept['kept']} of {kept['bytes'] / 1e6:.1f} MB, {kept['warm']} warm"
    failed = [f"{code} {count}" for code, count in sorted(health["warm_failures"].items())]
    return [line + (f", aici_warm failed: {', '.join(failed)}" if failed else "")]


def _processes(health: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the supervisor, builders and workers, each with a name to show."""
    own = ("pid", "cpu_s", "rss_kib")
    supervisor: dict[str, Any] = {name: health[name] for name in own if name in health}
    return [
        {"name": "supervisor", "sequences": "", **supervisor},
        *(
            {**builder, "name": "builder", "sequences": builder.get("error", "")}
            for builder in health["builders"]
        ),
        *({**worker, "name": f"worker {worker['index']}"} for worker in health["workers"]),
    ]


def _rate(now: dict[str, Any], old: dict[str, Any], name: str, seconds: float, factor: float) -> str:
    if seconds <= 0 or name not in now or name not in old:
        return "-"
    return f"{factor * (now[name] - old[name]) / seconds:.0f}"
