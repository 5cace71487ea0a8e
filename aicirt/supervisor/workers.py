"""Worker processes as the supervisor sees them: started, called, watched, replaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from aicirt.child import child_environment
from aicirt.config import WorkerConfig
from aicirt.descriptor import Descriptor
from aicirt.errors import ProtocolError, WorkerDiedError, error_from_wire
from aicirt.ipc.doorbell import Doorbell
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.messages import Call
from aicirt.settings import SEND_SECONDS

_log = logging.getLogger("aicirt.supervisor")


class WorkerProcess:
    """One process. `generation` makes it distinct from others that had or will have its index."""

    def __init__(
        self, index: int, generation: int, config: WorkerConfig, on_death: Callable[[WorkerProcess], None]
    ):
        self.index = index
        self.generation = generation
        #: live sequences, as counted by the worker's last answer and what was placed since
        self.load = 0
        self._on_death = on_death
        self._silence = config.worker.silence_seconds
        self._numbers = iter(range(1, 1 << 62))
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loop = asyncio.get_running_loop()
        self.bell = Doorbell.create()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "aicirt.worker"),
                    *("--control-fd", str(theirs.fileno()), "--bell", self.bell.name),
                    *("--config", config.to_json(), "--parent", str(os.getpid())),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=child_environment(),
            )
        self.pid = self._process.pid
        # a worker that reads nothing must not stop the supervisor for longer
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
        self._socket = FrameSocket(ours)
        self._pidfd = os.pidfd_open(self.pid)
        self._loop.add_reader(ours.fileno(), self._receive)
        self._loop.add_reader(self._pidfd, self._died)
        self.alive = True

    async def call(
        self, name: str, args: dict[str, Any], fds: list[int] | None = None, timeout: float | None = None
    ) -> Any:
        """Asks the worker; raises what it answers with, or WorkerDiedError."""
        value, _ = await self.exchange(name, args, fds, timeout)
        return value

    async def exchange(
        self, name: str, args: dict[str, Any], fds: list[int] | None = None, timeout: float | None = None
    ) -> tuple[Any, list[Descriptor]]:
        """As `call`, with the files that ride along with the answer."""
        if not self.alive:
            raise WorkerDiedError(f"worker {self.index} (pid {self.pid}) has ended")
        number = next(self._numbers)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = future
        try:
            self._socket.send(Call(number, name, args, len(fds or ())), fds)
            self.bell.ring()
            answer: tuple[Any, list[Descriptor]] = await asyncio.wait_for(future, timeout)
            return answer
        except TimeoutError:  # an OSError, but of wait_for
            raise
        except OSError as error:
            self.kill()  # it is gone, or has read nothing for so long that its socket is full
            raise WorkerDiedError(f"worker {self.index} (pid {self.pid}) does not answer: {error}") from error
        finally:
            self._waiting.pop(number, None)

    async def watch(self) -> None:
        """Pings for ever; kills the process when it is silent for too long."""
        while self.alive:
            try:
                stats = await self.call("ping", {}, timeout=self._silence)
                self.load = stats["sequences"]
            except TimeoutError:
                _log.error("worker %d (pid %d) is silent: killing it", self.index, self.pid)
                self.kill()
            except WorkerDiedError:
                return
            await asyncio.sleep(1)

    def kill(self) -> None:
        """SIGKILL; `on_death` follows."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def stop(self) -> None:
        """Asks it to end, then makes it end."""
        self._on_death = lambda _: None
        with contextlib.suppress(WorkerDiedError, TimeoutError):
            await self.call("stop", {}, timeout=2)
        if self.alive:
            self.kill()
        self._process.wait()
        self._died()

    def _receive(self) -> None:
        try:
            while (message := self._socket.poll()) is not None:
                number, error, value, count = message
                files = [Descriptor(fd) for fd in self._socket.fds[:count]]
                self._socket.fds = self._socket.fds[count:]
                future = self._waiting.get(number)
                if future is not None and not future.done():
                    if error is None:
                        future.set_result((value, files))
                    else:
                        future.set_exception(error_from_wire(error))
        except (ProtocolError, TypeError, ValueError, OSError) as error:
            _log.error("worker %d (pid %d) sent nonsense (%s): killing it", self.index, self.pid, error)
            self.kill()
        if self._socket.closed:
            self._loop.remove_reader(self._socket.socket.fileno())

    def _died(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._pidfd)
        self._loop.remove_reader(self._socket.socket.fileno())
        status = self._process.wait()
        os.close(self._pidfd)
        self._socket.close()
        self.bell.close()
        error = WorkerDiedError(f"worker {self.index} (pid {self.pid}) ended with status {status}")
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._on_death(self)


#: index of the process that runs `aici_init`, which may take a second: it has no sequences
BUILDER = -1


class WorkerPool:
    """A fixed number of places, each with a living worker, and a builder; the dead are replaced."""

    def __init__(self, count: int, config: WorkerConfig) -> None:
        self._config = config
        self._generation = 0
        self._watchers: set[asyncio.Task[None]] = set()
        self._on_replaced: list[Callable[[WorkerProcess, WorkerProcess], None]] = []
        self.restarts = 0
        self.workers = [self._spawn(index) for index in range(count)]
        self.builder = self._spawn(BUILDER)

    @property
    def all(self) -> list[WorkerProcess]:
        """The workers and the builder."""
        return [*self.workers, self.builder]

    def on_replaced(self, callback: Callable[[WorkerProcess, WorkerProcess], None]) -> None:
        """`callback(dead, successor)` is called after a replacement has been started."""
        self._on_replaced.append(callback)

    def place(self) -> WorkerProcess:
        """The worker that has least to do, which has one sequence more to do from now on."""
        worker = min(self.workers, key=lambda w: w.load)
        worker.load += 1
        return worker

    def find(self, index: int, generation: int) -> WorkerProcess:
        """Raises WorkerDiedError if that very process is gone."""
        if 0 <= index < len(self.workers) and self.workers[index].generation == generation:
            return self.workers[index]
        raise WorkerDiedError(f"worker {index} of generation {generation} has ended")

    async def stop(self) -> None:
        """Ends all workers."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*(worker.stop() for worker in self.all))

    def _spawn(self, index: int) -> WorkerProcess:
        self._generation += 1
        worker = WorkerProcess(index, self._generation, self._config, self._replace)
        watcher = asyncio.get_running_loop().create_task(worker.watch())
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return worker

    def _replace(self, dead: WorkerProcess) -> None:
        name = "the builder" if dead.index == BUILDER else f"worker {dead.index}"
        _log.error("%s (pid %d) died; starting another", name, dead.pid)
        self.restarts += 1
        successor = self._spawn(dead.index)
        if dead.index == BUILDER:
            self.builder = successor
        else:
            self.workers[dead.index] = successor
        for callback in self._on_replaced:
            callback(dead, successor)


def default_worker_count() -> int:
    """One per core that this process may use (affinity, CPU quota) less one for the engine, 1 to 8."""
    cores = float(len(os.sched_getaffinity(0)))
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    return max(1, min(8, int(cores) - 1))
