"""What engines have in common: requests go in, steps bring events, and in the end there are results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pyaici.engines.counts import Counts
    from pyaici.engines.events import Event
    from pyaici.engines.request import GenerationResult, Request


class Engine(ABC):
    """An inference engine whose requests may have controllers. Use from one thread."""

    def place(self, request: Request, gone: Any = None) -> Any:
        """What may take long of `add`, for its `placed`; from any thread. `gone`: what is not there any more.

        Raises what `add` raises.
        """
        return None

    @abstractmethod
    def add(self, request: Request, placed: Any = None) -> int:
        """Takes a request and returns its number; it begins with the next step.

        `placed`: what `place` has returned for it. Raises ValueError for one that the engine cannot do, and
        RuntimeFailure with "gone" in its `detail` if it has to be placed again.
        """

    @abstractmethod
    def cancel(self, request_id: int) -> None:
        """Ends what is left of a request."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether there is anything to do."""

    @property
    @abstractmethod
    def stats(self) -> Counts:
        """Counts since the engine was made."""

    @abstractmethod
    def step(self) -> list[Event]:
        """Goes one step further with all requests. Returns what happened, oldest first."""

    @abstractmethod
    def results(self, request_id: int) -> list[GenerationResult]:
        """The results of a request that has ended; they can be fetched once.

        Raises ValueError before its end.
        """

    @abstractmethod
    def drain(self) -> list[Event]:
        """Events that no step has returned: of requests that were added, cancelled or closed since."""

    @abstractmethod
    def close(self) -> None:
        """Ends all sequences and their controllers."""

    def run(
        self, requests: Iterable[Request] = (), on_event: Callable[[Event], None] | None = None
    ) -> list[GenerationResult]:
        """Adds these requests and steps until there is nothing left to do.

        Returns the results of these requests, in their order; each request's in the order of its sequences,
        beams best first.
        """
        numbers = [self.add(request) for request in requests]
        while self.busy:
            for event in self.step():
                if on_event is not None:
                    on_event(event)
        return [result for number in numbers for result in self.results(number)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
