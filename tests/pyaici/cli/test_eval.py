"""`aici eval`: its table and files, exit statuses, and the same bytes in every run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyaici.cli.__main__ import main
from pyaici.client.control import Daemon
from tests.pyaici.engines.batching.support import make_model
from tests.pyaici.engines.llama.tiny_gguf import write_gguf
from tests.pyaici.scripted_server import answering, stream

SCRIPT = """
from aici import arg, force, gen, set_var

async def main():
    set_var("argument", str(arg))
    await force(arg["word"] if isinstance(arg, dict) and "word" in arg else "yes")
    await gen(max_tokens=3)
"""
VOTE = Path(__file__).resolve().parents[3] / "controllers" / "pyctrl" / "samples" / "vote.py"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = write_gguf(make_model(), tmp_path_factory.mktemp("tiny") / "tiny.gguf")
    return ["--model", str(path), "--max-tokens", "8"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon(workers=1) as daemon:
        yield daemon


@pytest.fixture
def files(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a test, with a script and data."""
    (tmp_path / "yes.py").write_text(SCRIPT)
    rows = [{"prompt": f"{number}?", "expected": "yes", "word": f"w{number}"} for number in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AICI_SOCKET", str(daemon.socket_path))
    return tmp_path


def evaluate(*options: str) -> int:
    return main(["eval", "yes.py", "--data", "rows.jsonl", *options])


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_a_table_and_files_beside_a_baseline(
    files: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--metric", "contains", "--metric", "length", "--seeds", "2", "--out", "made", *tiny]
    assert evaluate(*options) == 0
    table = capsys.readouterr().out
    assert re.search(r"contains +1 \[1, 1\] +0 \[0, 0\] +\+1 \[\+1, \+1\]", table), table
    assert re.search(r"tokens sampled +3 \[3, 3\]", table) and re.search(r"errors +0 +0", table)
    made = results(files / "made")
    assert [(each["variant"], each["seed"]) for each in made] == (
        [("controller", 1)] * 6 + [("controller", 2)] * 6 + [("baseline", 1)] * 6
    ), "without randomness, one seed of the baseline is enough"
    assert made[0]["text"].startswith("yes") and made[0]["variables"] == {"argument": "None"}
    assert {path.name for path in (files / "made").iterdir()} == {
        *("results.jsonl", "times.jsonl", "summary.json", "plot.svg")
    }


def test_a_row_is_the_argument_without_what_is_expected(files: Path, tiny: list[str]) -> None:
    options = ["--metric", "exact", "--row-arg", "--limit", "2", "--no-baseline", "--out", "made", *tiny]
    assert evaluate(*options) == 0
    first, second = results(files / "made")
    assert second["text"].startswith("w1")
    assert first["variables"]["argument"] == "{'prompt': '0?', 'word': 'w0'}"


def test_controllers_other_than_scripts(files: Path, tiny: list[str]) -> None:
    options = ["--data", "rows.jsonl", "--arg", "yes|no", "--metric", "regex", "--no-baseline"]
    assert main(["eval", "regex", *options, "--out", "made", *tiny]) == 0
    assert {each["text"] for each in results(files / "made")} <= {"yes", "no"}


def test_controllers_that_mix_the_logits_of_a_second_model(files: Path, tiny: list[str]) -> None:
    write_gguf(make_model(num_hidden_layers=1), files / "small.gguf")
    (files / "mixes.py").write_text(
        "from aici import distribution, mix, set_var\n"
        "async def main():\n"
        "    await mix(None, weight=1.0, model='small')\n"
        "    set_var('own', str((await distribution(own=True)).likely(1)))\n"
        "    set_var('small', str((await distribution()).likely(1)))\n"
    )
    options = ["--data", "rows.jsonl", "--metric", "length", "--limit", "1", "--no-baseline"]
    assert main(["eval", "mixes.py", *options, "--second", "small=small.gguf", "--out", "made", *tiny]) == 0
    (result,) = results(files / "made")
    assert result["error"] is None and result["variables"]["own"] != result["variables"]["small"]


def test_exit_status_of_a_regression(
    files: Path, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--metric", "contains", "--no-baseline", *tiny]
    assert evaluate(*options, "--fail-under", "0.9", "--out", "good") == 0
    assert evaluate(*options, "--compare", "good/results.jsonl") == 0
    assert "contains: +0 [+0, +0] against the earlier run" in capsys.readouterr().out
    (files / "yes.py").write_text(SCRIPT.replace('"yes"', '"no"'))
    assert evaluate(*options, "--fail-under", "0.9", "--compare", "good/results.jsonl") == 1
    said = capsys.readouterr().out
    assert "too low: contains is 0, below 0.9 (--fail-under)" in said and "worse: contains" in said


def served(text: str, sampled: int) -> bytes:
    """Returns the stream of a run that samples some tokens in two steps."""
    usage = {"prompt_tokens": 2, "sampled_tokens": sampled, "forced_tokens": 1, "backtracked_tokens": 0}
    forced = {"text": "y", "origin": "forced", "tokens": [1]}
    pieces = [forced, {"text": "es", "origin": "sampled", "tokens": list(range(sampled))}]
    steps = [
        {
            "object": "run",
            "forks": [{"index": 0, "text": piece["text"], "pieces": [piece]}],
            "usage": usage,
            "timing": {"step_s": 0.1, "control_s": 0.25},
        }
        for piece in pieces
    ]
    ended = {"index": 0, "parent": None, "text": text, "finish_reason": "eos", "error": None, "log": ""}
    end = {
        "object": "run.end",
        "forks": [ended],
        "usage": usage,
        "variables": {"v": "1"},
        "timing": {"first_token_s": 0.5, "seconds": 1.5},
    }
    return stream({"object": "initial-run"}, *steps, end, "[DONE]")


def test_the_model_of_a_server(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [(200, served("yes", 2))] * 2 + [(200, served("no", 3))] * 2
    options = ["--metric", "exact", "--limit", "2", "--out", "made", "--chat", "--batch", "2", "--row-arg"]
    with answering(answers) as (url, seen):
        assert evaluate(*options, "--server", url) == 0
        assert evaluate(*options, "--server", url, "--threads", "2") == 1
    assert "--threads cannot be used with --server" in capsys.readouterr().err
    made = results(files / "made")
    assert [(each["variant"], each["text"], each["metrics"]) for each in made] == [
        *[("controller", "yes", {"exact": 1.0})] * 2,
        *[("baseline", "no", {"exact": 0.0})] * 2,
    ]
    first = made[0]
    assert (first["sampled"], first["forced"], first["passes"], first["variables"]) == (2, 1, 2, {"v": "1"})
    times = [json.loads(line) for line in (files / "made" / "times.jsonl").read_text().splitlines()]
    assert (times[0]["seconds"], times[0]["control_seconds"]) == (1.5, 0.5)
    bodies = [body for _, _, body in seen]
    assert [body["controller"] for body in bodies] == ["pyctrl", "pyctrl", "none", "none"]
    assert json.loads(bodies[1]["controller_arg"])["arg"] == {"prompt": "1?", "word": "w1"}
    assert "controller_arg" not in bodies[2] and all(body["details"] for body in bodies)
    assert bodies[0]["messages"] == [{"role": "user", "content": "0?"}]
    assert bodies[0]["seed"] == first["request_seed"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metric", "exakt"], "there is no metric 'exakt'"),
        (["--metric", "exact", "--seeds", "0"], "--seeds is 0; it must be at least 1"),
        (["--metric", "exact", "--data", "none.jsonl"], "none.jsonl"),
        (["--metric", "exact", "--compare", "rows.jsonl"], "not a results.jsonl of aici eval"),
    ],
)
def test_wrong_options(
    files: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(*options) == 1
    assert words in capsys.readouterr().err


# the arithmetic is the same with the weights of the default model, which take ten times as long
@pytest.mark.parametrize(
    "weights", ["random", pytest.param("real", marks=[pytest.mark.slow, pytest.mark.thorough])]
)
def test_the_same_seeds_give_the_same_bytes(weights: str, tiny: list[str], tmp_path: Path) -> None:
    """Forks wait for each other, and rows run in groups, also beside other work."""
    rows = tmp_path / "rows.jsonl"
    asked = "Anna has {} apples and buys 2 more. How many apples has she?"
    rows.write_text(
        "".join(json.dumps({"prompt": asked.format(n), "expected": n + 2}) + "\n" for n in (3, 5))
    )
    command = ["eval", str(VOTE), "--data", str(rows), "--batch", "2", *(tiny if weights == "random" else ())]
    command += ["--metric", "contains", "--temperature", "0.8", "--max-tokens", "12", "--out"]
    for folder in ("one", "two"):
        beside = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(folder == "two")
        ]
        try:
            assert main([*command, str(tmp_path / folder)]) == 0
        finally:
            for process in beside:
                process.kill()
                process.wait()
    for name in ("results.jsonl", "summary.json", "plot.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert len({each["text"] for each in results(tmp_path / "one")}) > 2
