"""Servers with several ranks: tensor, pipeline and data parallelism, in processes of vLLM and of Ray.

Each server writes the same texts as an engine with a single rank, and ends cleanly when a rank is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from lab.runners.compiled import share
from lab.system.processes import command_line, family, left_behind, private_daemons, process_start_time
from lab.vllm.server import MODEL, Server
from lab.vllm.shims.ray_on_cpu import ray_environment
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from tests.pyaici.engines.vllm.configurations import ConfiguredEngines, Models
from tests.pyaici.engines.vllm.requests import FRANCE, parameters
from tests.thorough import also, is_named, thorough

pytestmark = pytest.mark.slow

STORY = "Once upon a time"
#: a pattern that a random model ends, since each of its texts has a limit
YEAR = " [A-Z][a-z]{2,9}, [0-9]{4}"
_SHARED = Path("/dev/shm")
#: choices of a request whose controller forks into three
CHOICES = 5
#: more tokens than a test waits for
ENDLESS = 60_000
#: of the controller that samples at a temperature
SEED = 7


@dataclass(frozen=True)
class Case:
    """A way to start several ranks."""

    arguments: tuple[str, ...]
    #: a part of the title of the process that a test kills
    victim: bytes
    #: number of engine processes that share the requests
    replicas: int = 1
    ray: bool = False


CASES = {
    "tensor": Case(("--tensor-parallel-size=2",), b"Worker_TP1"),
    "ray": Case(
        ("--tensor-parallel-size=2", "--distributed-executor-backend=ray"), b"RayWorkerProc", ray=True
    ),
    # on a CPU, vLLM allocates what the second stage receives only while it warms up for a compiler
    "pipeline": Case(
        (
            "--pipeline-parallel-size=2",
            "--no-enforce-eager",
            '--compilation-config={"mode": 1, "backend": "eager"}',
        ),
        b"Worker_PP1",
    ),
    "data": Case(("--data-parallel-size=2",), b"EngineCore_DP1", replicas=2),
}
#: test_drafts.py has stages with the simulated worker, and Ray takes ten seconds to start
STARTED = ["tensor", *also("ray", "pipeline"), "data"]


def marked(names: Iterable[str]) -> list[Any]:
    """Returns parameters: the scheduler alone knows of replicas, the others are about vLLM's workers."""
    marks = {"data": pytest.mark.simulated_worker}
    return [pytest.param(name, marks=marks.get(name, pytest.mark.real_worker)) for name in names]


@dataclass
class Running:
    """A server, and the daemon that its replicas share, if there are several."""

    case: Case
    server: Server
    daemon: Daemon | None

    def complete(self, prompt: str, extra: dict[str, Any], *, rank: int | None = None, **options: Any) -> Any:
        """Returns a greedy completion. `rank`: the data-parallel rank; vLLM chooses one if it is None.

        vLLM refuses temperature 0 for several choices; top_k=1 selects the most likely tokens, too.
        """
        settings = {"model": MODEL, "prompt": prompt, "temperature": 1, "max_tokens": 60, **options}
        headers = None if rank is None else {"X-data-parallel-rank": str(rank)}
        return self.server.client.completions.create(
            **settings, extra_body={"top_k": 1, **extra}, extra_headers=headers
        )


@pytest.fixture(scope="module")
def expected(engines: ConfiguredEngines) -> dict[str, list[str]]:
    """The texts of an engine with a single rank, by kind of request."""
    llm = engines("random")
    forking = parameters(
        max_tokens=60,
        temperature=1.0,
        top_k=1,
        seed=SEED,
        n=CHOICES,
        extra_args={"aici_controller": "showcase", "aici_fork": True, "aici_hold": True},
    )
    free, pattern, forks = llm.generate(
        [FRANCE, FRANCE, STORY],
        [parameters(max_tokens=60), parameters("regex", YEAR, max_tokens=60), forking],
        use_tqdm=False,
    )
    engines.close()
    return {
        name: [choice.text for choice in output.outputs]
        for name, output in (("free", free), ("pattern", pattern), ("forks", forks))
    }


@pytest.fixture(scope="module", params=marked(STARTED))
def running(
    request: pytest.FixtureRequest, models: Models, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    case = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    environment: dict[str, str] = {}
    daemon = None
    with contextlib.ExitStack() as stack:
        if case.ray:
            environment = ray_environment(stack.enter_context(short_folder()), 2)
        if "--no-enforce-eager" in case.arguments:
            environment["TORCH_COMPILE_DISABLE"] = "0"
        if case.replicas > 1:
            daemon = stack.enter_context(Daemon(workers=1, store=share(folder / "store")))
            environment["AICI_SOCKET"] = str(daemon.socket_path)
        arguments = (*case.arguments, f"--max-model-len={ENDLESS + 100}")
        killed = thorough() or is_named(request.node)
        if killed:
            # a rank spins, deaf to signals, until the dead one answers
            environment["VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS"] = "5"
        # forks take a fraction of the time, but their ranks must not be killed
        server = _started(models("random"), folder / "log", arguments, environment, forked=not killed)
        stack.push(server)
        yield Running(case, server, daemon)


def _started(
    model: Path, log: Path, arguments: tuple[str, ...], environment: dict[str, str], *, forked: bool
) -> Server:
    """Starts a server, again if Ray's processes took more than 30 s, which nothing can extend."""
    while True:
        try:
            return Server(model, log, arguments, forked=forked, **environment).__enter__()
        except RuntimeError:
            if "The current node timed out during startup" not in log.read_text():
                raise


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A temporary folder for Ray, whose sockets need a shorter path than pytest's folders have."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


REGEX = {"vllm_xargs": {"aici_controller": "regex", "aici_arg": YEAR}}
SHOWCASE = {"seed": SEED, "vllm_xargs": {"aici_controller": "showcase", "aici_fork": 1, "aici_hold": 1}}


def test_texts_equal_those_of_a_single_rank(running: Running, expected: dict[str, list[str]]) -> None:
    """Runs a free request, one under a pattern, and one that forks and backtracks in one batch."""
    for rank in range(running.case.replicas):
        with ThreadPoolExecutor(3) as threads:
            free = threads.submit(running.complete, FRANCE, {}, rank=rank)
            pattern = threads.submit(running.complete, FRANCE, REGEX, rank=rank)
            forks = threads.submit(running.complete, STORY, SHOWCASE, n=CHOICES, rank=rank)
        assert [choice.text for choice in free.result().choices] == expected["free"]
        (choice,) = pattern.result().choices
        assert [choice.text] == expected["pattern"] and re.fullmatch(YEAR, choice.text)
        assert choice.stop_reason == "controller"
        assert texts(forks.result()) == expected["forks"]
        used = [text for text in expected["forks"] if text]
        assert len(set(used)) == 3 and all(text.startswith("Once upon a time, far away,") for text in used)


def texts(completion: Any) -> list[str]:
    return [choice.text for choice in sorted(completion.choices, key=lambda choice: choice.index)]


def test_all_choices_of_a_request_that_forks_are_on_one_rank(
    running: Running, expected: dict[str, list[str]]
) -> None:
    """vLLM itself sends the choices of a request to different ranks."""
    with ThreadPoolExecutor(4) as threads:
        forks = [threads.submit(running.complete, STORY, SHOWCASE, n=CHOICES) for _ in range(4)]
    assert [texts(one.result()) for one in forks] == [expected["forks"]] * 4


def test_replicas_share_the_modules_and_templates_of_one_daemon(running: Running) -> None:
    if running.daemon is None:
        pytest.skip("a single engine process has no one to share with")
    assert not private_daemons(family(running.server.process.pid))

    def use(pattern: str) -> None:
        call = {"vllm_xargs": {"aici_controller": "regex", "aici_arg": pattern}}
        for rank in range(running.case.replicas):
            assert re.fullmatch(pattern, running.complete(FRANCE, call, rank=rank).choices[0].text)

    with Runtime(running.daemon.socket_path) as runtime:
        use("[0-9]{3}")  # stores the module
        before = runtime.health()
        use("[a-z]{3} [0-9]{2}")
        after = runtime.health()
    assert len(after["clients"]) == running.case.replicas + 1
    assert after["templates"]["kept"] == before["templates"]["kept"] + 1
    assert after["modules"] == before["modules"]


# test_server.py kills an engine's process: what a client sees, and that nothing is left
@pytest.mark.thorough
@pytest.mark.parametrize("running", marked(CASES), indirect=True)
def test_a_killed_rank_ends_all_requests_and_processes(running: Running) -> None:
    """vLLM ends the server when a rank is gone. Its clients notice, and nothing remains of it."""
    long = {"vllm_xargs": {"aici_controller": "regex", "aici_arg": "( [a-z]+)+"}}
    server, case = running.server, running.case
    for rank in range(case.replicas):
        running.complete(FRANCE, long, max_tokens=2, rank=rank)
    members = family(server.process.pid)
    daemons = private_daemons(members)
    assert bool(daemons) == (running.daemon is None)
    members |= daemons
    rays_own = {pid: start for pid, start in members.items() if is_part_of_ray(pid)}
    names = shared_memory(members)
    # a process that the rank has just forked has its command line, too
    victim = min((pid for pid in members if case.victim in command_line(pid)), key=members.__getitem__)
    streams = [  # those that take longer to begin come first
        iter(running.complete(FRANCE, extra, stream=True, max_tokens=ENDLESS, rank=rank))
        for extra in (long, {})
        for rank in range(case.replicas)
    ]
    for stream in streams:
        next(stream)
    os.kill(victim, signal.SIGKILL)
    with ThreadPoolExecutor(len(streams)) as threads:
        ends = list(threads.map(end_of, streams))
    last = case.replicas - 1
    assert all(isinstance(end, openai.APIError) for end in ends[last :: case.replicas]), ends
    # other replicas are shut down in order, and may complete their requests before
    assert all(isinstance(end, openai.APIError) or end in ("abort", "length") for end in ends), ends
    server.process.wait()
    assert not left_behind({pid: start for pid, start in members.items() if pid not in rays_own})
    for pid, start in rays_own.items():  # helpers of Ray may notice the end of their node late
        if process_start_time(pid) == start:
            os.kill(pid, signal.SIGKILL)
    for name in names:  # vLLM does not remove all of its own after a kill
        (_SHARED / name).unlink(missing_ok=True)
    if running.daemon is not None:
        with Runtime(running.daemon.socket_path) as runtime:
            assert [client["sequences"] for client in runtime.health()["clients"]] == [0]


def is_part_of_ray(pid: int) -> bool:
    """Returns whether a process belongs to Ray itself, and not to vLLM, whose workers are actors."""
    command = command_line(pid)
    return (command.startswith(b"ray::") or b"/ray/" in command) and b"RayWorkerProc" not in command


def end_of(stream: Any) -> Any:
    """Returns the error that ends a stream, or else its last finish reason."""
    reason = None
    try:
        for chunk in stream:
            reason = chunk.choices[0].finish_reason or reason
    except openai.APIError as error:
        return error
    return reason


def shared_memory(members: dict[int, int]) -> set[str]:
    """Returns the names in /dev/shm that these processes have mapped."""
    found: set[str] = set()
    for pid in members:
        try:
            maps = Path(f"/proc/{pid}/maps").read_text()
        except OSError:  # the process has ended meanwhile
            continue
        found |= set(re.findall(rf" {_SHARED}/(\S+)$", maps, re.MULTILINE))
    return {name for name in found if (_SHARED / name).exists()}


_ACTORS = """
import ray
from pyaici.engines.vllm.plugin import _accepts_requests

@ray.remote(num_cpus=0)
class Actor:
    def accepts_requests(self):
        return _accepts_requests()

ray.init()
actors = [Actor.options(name=name).remote() for name in ("vllm_Worker_1_TP0", "server")]
print([_accepts_requests(), *ray.get([actor.accepts_requests.remote() for actor in actors])])
"""


@pytest.mark.real_worker
def test_workers_in_actors_of_ray_load_only_the_scheduler_side() -> None:
    """Python gives them the name of a main process."""
    with short_folder() as folder:
        done = subprocess.run(
            [sys.executable, "-c", _ACTORS],
            env=os.environ | ray_environment(folder, 1),
            check=False,
            capture_output=True,
            text=True,
        )
    assert done.stdout.splitlines()[-1:] == ["[True, False, True]"], done.stderr
