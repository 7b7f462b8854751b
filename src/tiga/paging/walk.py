"""The pages of a walk as jobs: which pages there are is the same for all backends."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tiga.paging.pipeline import Job
from tiga.paging.plan import Planner
from tiga.paging.span import LongRow, Span
from tiga.paging.stage import Stage
from tiga.runtime.arena import Arena


@dataclass(frozen=True)
class WalkJobs(ABC):
    """The jobs of a walk; a backend stages and runs their pages, and rows that exceed one."""

    planner: Planner

    @property
    def stage(self) -> Stage:
        return self.planner.stage

    def jobs(self, spans: Iterable[Span | LongRow]) -> Iterator[Job]:
        """Those of these pages, in order."""
        for span in spans:
            if isinstance(span, LongRow):
                yield from self._long_row(span)
            else:
                read, smaller = partial(self._read, span), partial(self._smaller, span)
                yield Job(read, self._run, smaller, self._is_at_hand(span))

    def _smaller(self, span: Span) -> Iterator[Job]:
        yield from self.jobs(self.planner.smaller(span))

    def _is_at_hand(self, span: Span) -> bool:
        """Whether staging a page takes no time."""
        return False

    @abstractmethod
    def _read(self, span: Span, arena: Arena) -> Any:
        """A page, staged in an arena."""

    @abstractmethod
    def _run(self, page: Any) -> None:
        """Compute a staged page."""

    @abstractmethod
    def _long_row(self, long: LongRow) -> Iterator[Job]:
        """The jobs of a row that no page holds."""
