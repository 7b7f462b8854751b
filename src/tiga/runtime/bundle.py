"""Executable bundles: tasks on named resources whose order is checked before anything runs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from tiga.errors import InvalidValue
from tiga.runtime.hierarchy import HierarchyRuntime, PhysicalInstance
from tiga.runtime.tiers import tier_of

SCHEMA = "tiga.executable-bundle.v1"
MODES = ("read", "write", "read-write")


@dataclass(frozen=True)
class Resource:
    """A value that tasks read and write; an `external` one is allocated by the caller."""

    name: str
    tier: str
    capacity_bytes: int
    version: int = 0
    external: bool = False


@dataclass(frozen=True)
class Access:
    """How a task uses a resource: all of it, or one `partition` of a `partitioning`."""

    resource: str
    mode: str
    version: int = 0
    partitioning: str | None = None
    partition: int | None = None

    def conflicts(self, other: "Access") -> bool:
        """Whether the order of the two accesses matters."""
        if self.resource != other.resource or self.mode == other.mode == "read":
            return False
        apart = self.partitioning is not None and self.partitioning == other.partitioning
        return not (apart and self.partition != other.partition)


@dataclass(frozen=True)
class Task:
    """A call of `symbol` once all of `depends_on` are done."""

    name: str
    symbol: str
    accesses: tuple[Access, ...] = ()
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bundle:
    """Resources and tasks, refused unless every order that matters is declared.

    Of two accesses to one resource of which one writes, one task must depend on the other,
    directly or through others, unless they touch different partitions of one partitioning.

    Raises:
        InvalidValue: a name given twice or unknown, tasks that wait for each other, an access of
            another version than its resource's, or two conflicting accesses without an order.

    Example:
        >>> x = Resource("x", "host", 4)
        >>> fill = Task("fill", "fill", (Access("x", "write"),))
        >>> show = Task("show", "show", (Access("x", "read"),), depends_on=("fill",))
        >>> [task.name for task in Bundle((x,), (show, fill)).order]
        ['fill', 'show']
    """

    resources: tuple[Resource, ...]
    tasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        _require_distinct("resource", [r.name for r in self.resources])
        _require_distinct("task", [t.name for t in self.tasks])
        for resource in self.resources:
            if not tier_of(resource.tier).allocatable and not resource.external:
                raise InvalidValue(f"bundle: {resource.name!r} is in {resource.tier!r}, which "
                                   "cannot be allocated.")  # fmt: skip
        for task in self.tasks:
            self._check(task)
        self._check_order()

    @staticmethod
    def parse(text: str) -> "Bundle":
        """The bundle that a JSON text describes: `schema`, `resources` and `tasks`, with the
        fields of the classes.

        Raises:
            InvalidValue: no JSON, another schema, unknown or missing fields, or an invalid bundle.
        """
        try:
            data = json.loads(text)
            schema = data.pop("schema")
            if schema != SCHEMA:
                raise InvalidValue(f"bundle: expected schema {SCHEMA!r}, got {schema!r}.")
            resources = tuple(Resource(**r) for r in data.pop("resources"))
            tasks = tuple(map(_task, data.pop("tasks")))
            if data:
                raise InvalidValue(f"bundle: unknown entries {sorted(data)}.")
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise InvalidValue(f"bundle: not a description of one: {error}") from None
        return Bundle(resources, tasks)

    @cached_property
    def order(self) -> tuple[Task, ...]:
        """The tasks, each after those it depends on, else as given."""
        waiting, done, order = list(self.tasks), set[str](), list[Task]()
        while waiting:
            ready = next((t for t in waiting if done.issuperset(t.depends_on)), None)
            if ready is None:
                names = ", ".join(repr(t.name) for t in waiting)
                raise InvalidValue(f"bundle: tasks wait for each other: {names}.")
            waiting.remove(ready)
            done.add(ready.name)
            order.append(ready)
        return tuple(order)

    def allocate(self, runtime: HierarchyRuntime) -> dict[str, PhysicalInstance]:
        """Instances of the resources by name; external ones are resolved."""
        return {
            r.name: runtime.resolve(r.name, r.version, tier=r.tier)
            if r.external
            else runtime.allocate(r.name, r.version, tier=r.tier, capacity_bytes=r.capacity_bytes)
            for r in self.resources
        }

    def run(
        self, instances: Mapping[str, PhysicalInstance], symbols: Mapping[str, Callable[..., Any]]
    ) -> None:
        """Call every task's symbol with the instances that it accesses, in order.

        Raises:
            InvalidValue: a symbol or an instance is missing; nothing has run then.
        """
        missing = {t.symbol for t in self.tasks} - set(symbols)
        missing |= {r.name for r in self.resources} - set(instances)
        if missing:
            raise InvalidValue(f"bundle: nothing is bound to {sorted(missing)}.")
        for task in self.order:
            symbols[task.symbol](*(instances[a.resource] for a in task.accesses))

    def _check(self, task: Task) -> None:
        resources = {r.name: r for r in self.resources}
        unknown = set(task.depends_on) - {t.name for t in self.tasks}
        unknown |= {a.resource for a in task.accesses} - set(resources)
        if unknown:
            raise InvalidValue(f"bundle: task {task.name!r} names unknown {sorted(unknown)}.")
        for access in task.accesses:
            if access.mode not in MODES:
                raise InvalidValue(f"bundle: task {task.name!r}: mode {access.mode!r} is none of "
                                   f"{', '.join(MODES)}.")  # fmt: skip
            version = resources[access.resource].version
            if access.version != version:
                raise InvalidValue(
                    f"bundle: task {task.name!r} uses version {access.version} of "
                    f"{access.resource!r}, which is version {version}."
                )

    def _check_order(self) -> None:
        before: dict[str, set[str]] = {}
        for task in self.order:
            direct = set(task.depends_on)
            before[task.name] = direct.union(*(before[name] for name in direct))
        for one, other in combinations(self.tasks, 2):
            if one.name in before[other.name] or other.name in before[one.name]:
                continue
            for a in one.accesses:
                if any(a.conflicts(b) for b in other.accesses):
                    raise InvalidValue(
                        f"bundle: tasks {one.name!r} and {other.name!r} both use {a.resource!r} "
                        "and one writes it, but neither depends on the other; declare which "
                        "comes first, or access different partitions."
                    )


def _task(data: Mapping[str, Any]) -> Task:
    fields = dict(data)
    accesses = tuple(Access(**a) for a in fields.pop("accesses", ()))
    return Task(**fields | {"accesses": accesses,
                            "depends_on": tuple(fields.get("depends_on", ()))})  # fmt: skip


def _require_distinct(what: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidValue(f"bundle: {what} names {twice} are given twice.")
