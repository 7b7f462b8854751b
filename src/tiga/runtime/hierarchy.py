"""Named values in several tiers at once, moved between them in the background."""

from collections.abc import Callable
from typing import Any

from tiga.errors import InvalidState, InvalidType, InvalidValue, UnknownName
from tiga.runtime.caller import user_line
from tiga.runtime.locks import Ordered
from tiga.runtime.queue import READY, Event, Stream
from tiga.runtime.spill import SpillFile
from tiga.runtime.storage import DeviceStorage, DiskStorage, HostStorage, PinnedStorage, Storage
from tiga.runtime.tiers import TIERS, Account, parse_budgets, tier_of

_IN_MEMORY: dict[str, Callable[[int, int], Storage]] = {
    "host": lambda nbytes, device: HostStorage(nbytes),
    "host-pinned": PinnedStorage,
    "device": DeviceStorage,
}


class Buffer:
    """The bytes of an instance: reads and writes wait for the transfers they would meet."""

    def __init__(self, instance: "PhysicalInstance", storage: Storage) -> None:
        self._instance = instance
        self.storage = storage

    @property
    def nbytes(self) -> int:
        """Bytes in the buffer."""
        return self.storage.nbytes

    @property
    def tier(self) -> str:
        """The tier that holds it."""
        return self.storage.tier

    def read(self, offset: int = 0, nbytes: int | None = None) -> bytes:
        """A copy of the bytes, after every transfer into them."""
        self._instance.hazards.before_read()
        return self.storage.read(offset, nbytes)

    def write(self, data: Any, offset: int = 0) -> None:
        """Store bytes, after every transfer from or into them."""
        self._instance.hazards.before_write()
        self.storage.write(data, offset)


class Hazards:
    """What is under way on an instance: its last write, and the reads since."""

    def __init__(self) -> None:
        self._write: Event = READY
        self._reads: list[Event] = []

    def before_read(self) -> None:
        """Wait for the last write."""
        self._write.wait()

    def before_write(self) -> None:
        """Wait for the last write and for the reads since."""
        for event in self.all():
            event.settle()

    def writes(self) -> list[Event]:
        """What a new read must come after."""
        return [self._write]

    def all(self) -> list[Event]:
        """What a new write must come after."""
        return [self._write, *self._reads]

    def add_read(self, event: Event) -> None:
        """Note a read under way."""
        self._reads = [e for e in self._reads if not e.query()] + [event]

    def add_write(self, event: Event) -> None:
        """Note a write under way: later reads and writes come after it."""
        self._write, self._reads = event, []


class PhysicalInstance:
    """One copy of a version of a value, in one tier; made by `HierarchyRuntime.allocate`."""

    def __init__(self, runtime: "HierarchyRuntime", name: str, version: int, storage: Storage,
                 ticket: int, device: str, layout: str) -> None:  # fmt: skip
        self._runtime, self._ticket = runtime, ticket
        self.name, self.version = name, version
        self.device, self.layout = device, layout
        self.hazards = Hazards()
        self.buffer = Buffer(self, storage)
        self.closed = False

    @property
    def tier(self) -> str:
        """The tier that holds it."""
        return self.buffer.tier

    @property
    def capacity_bytes(self) -> int:
        """Bytes in its buffer."""
        return self.buffer.nbytes

    @property
    def ready(self) -> bool:
        """Whether the last transfer into it is done."""
        return all(event.query() for event in self.hazards.writes())

    def wait(self) -> None:
        """Return when the last transfer into it is done; raise what that failed with."""
        self.hazards.before_read()

    def close(self) -> None:
        """Free it, after every transfer from or into it; a second time does nothing."""
        if self.closed:
            return
        self.closed = True
        for event in self.hazards.all():
            event.settle()
        self._runtime._forget(self, self._ticket)
        self.buffer.storage.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.capacity_bytes} bytes"
        return f"<{self.name!r} version {self.version} in {self.tier!r}, {state}>"


class HierarchyRuntime:
    """Allocates instances within a budget per tier, and copies between them in the background.

    Args:
        budgets: sizes by tier, such as `{"host": "1GiB", "nvme": 4096}`; a tier that is not
            named has no bound.
        nvme_directory: where the disk tier lies; TMPDIR, else /var/tmp.
        io_workers: threads that copy.

    Tiers are "device" and "host-pinned" (both need an NVIDIA GPU), "host" (or "ram") and "nvme"
    (or "disk"). Transfers that touch one instance are ordered as they were asked for: a read after
    a write, a write after reads and writes. Closing an instance waits for its transfers.

    Raises:
        InvalidValue: an unknown tier, a bad size or directory.

    Example:
        >>> with HierarchyRuntime(budgets={"ram": 8, "nvme": 4}) as runtime:
        ...     a = runtime.allocate("x", 0, tier="ram", capacity_bytes=4)
        ...     a.buffer.write(b"tiga")
        ...     b = runtime.allocate("x", 0, tier="nvme", capacity_bytes=4)
        ...     runtime.transfer(a, b).wait()
        ...     b.buffer.read()
        b'tiga'
    """

    def __init__(
        self, *, budgets: Any = None, nvme_directory: Any = None, io_workers: int = 2
    ) -> None:
        if isinstance(io_workers, bool) or not isinstance(io_workers, int) or io_workers < 1:
            raise InvalidValue(f"io_workers: expected an int of at least 1, got {io_workers!r}.")
        parsed = parse_budgets(budgets)
        names = [tier.name for tier in TIERS if tier.allocatable]
        self.accounts = {name: Account(name, parsed.get(name)) for name in names}
        self._directory, self._file = nvme_directory, None
        if nvme_directory is not None:
            self._file = SpillFile(nvme_directory)
        self._streams = [Stream(f"tiga-io-{i}") for i in range(io_workers)]
        self._next = 0
        self._instances: list[PhysicalInstance] = []
        self._lock = Ordered("hierarchy")
        self._closed = False

    @property
    def live_bytes(self) -> dict[str, int]:
        """Bytes allocated now, by tier."""
        return {name: account.live for name, account in self.accounts.items()}

    @property
    def peak_live_bytes(self) -> dict[str, int]:
        """The most bytes allocated at once, by tier."""
        return {name: account.peak for name, account in self.accounts.items()}

    def allocate(
        self,
        name: str,
        version: int,
        *,
        tier: str,
        capacity_bytes: int,
        device: str = "cuda:0",
        layout: str = "contiguous",
    ) -> PhysicalInstance:
        """A new instance of a version of a value, all zeros.

        Args:
            name, version: what it is an instance of; several instances may share both.
            tier: where; see the class.
            capacity_bytes: its size.
            device: the GPU of the tiers "device" and "host-pinned".
            layout: a note for the caller.

        Raises:
            OutOfBudget: it does not fit the tier's budget.
            InvalidValue: an unknown tier, or one that cannot be allocated; a bad version or size.
            UnsupportedByBackend: a GPU is needed and there is none.
            InvalidState: the runtime is closed.
        """
        where = tier_of(tier)
        if not where.allocatable:
            known = ", ".join(t.name for t in TIERS if t.allocatable)
            raise InvalidValue(
                f"tier {where.name!r} can be named in plans, but not allocated; expected one of "
                f"{known}."
            )
        _require_count("version", version)
        _require_count("capacity_bytes", capacity_bytes)
        if not isinstance(name, str) or not name:
            raise InvalidType(f"name: expected text, got {name!r}.")
        with self._lock:
            self._require_open()
            account = self.accounts[where.name]
            ticket = account.charge(capacity_bytes, f"{name!r} version {version}")
            try:
                storage = self._storage(where.name, capacity_bytes, _device_index(device))
            except BaseException:
                account.release(ticket)
                raise
            instance = PhysicalInstance(self, name, version, storage, ticket, device, layout)
            self._instances.append(instance)
        return instance

    def transfer(
        self, source: PhysicalInstance, target: PhysicalInstance, *, stream: Stream | None = None
    ) -> Event:
        """Copy one instance into another of the same value, version and size.

        Returns at once; the event is done when the copy is. It waits for earlier transfers of
        both instances.

        Raises:
            InvalidValue: the two do not belong together, or are one.
            InvalidState: one of them, or the runtime, is closed.
        """
        self._require_pair(source, target)
        with self._lock:
            self._require_open()
            if stream is None:
                self._next = (self._next + 1) % len(self._streams)
                stream = self._streams[self._next]
            done = stream.submit(
                lambda: source.buffer.storage.copy_to(target.buffer.storage),
                after=source.hazards.writes(),
                behind=target.hazards.all(),
            )
            source.hazards.add_read(done)
            target.hazards.add_write(done)
        return done

    def latest(self, name: str, *, tier: str | None = None) -> PhysicalInstance:
        """The living instance of the highest version, in the fastest tier that holds it.

        Raises:
            UnknownName: there is none.
        """
        found = self._find(name, tier)
        return min(found, key=lambda i: (-i.version, tier_of(i.tier).speed))

    def resolve(
        self, name: str, version: int | None = None, *, tier: str | None = None
    ) -> PhysicalInstance:
        """The living instance of a version (default: the latest) in the fastest tier.

        Raises:
            UnknownName: there is none.
        """
        if version is None:
            return self.latest(name, tier=tier)
        found = [i for i in self._find(name, tier) if i.version == version]
        if not found:
            versions = sorted({i.version for i in self._find(name, tier)})
            raise UnknownName(f"{name!r} has no living version {version}; it has {versions}.")
        return min(found, key=lambda i: tier_of(i.tier).speed)

    def close(self) -> None:
        """Finish all transfers and free all instances."""
        with self._lock:
            self._closed = True
        for instance in list(self._instances):
            instance.close()
        for stream in self._streams:
            stream.close()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> "HierarchyRuntime":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _find(self, name: str, tier: str | None) -> list[PhysicalInstance]:
        where = None if tier is None else tier_of(tier).name
        with self._lock:
            found = [i for i in self._instances if i.name == name and where in (None, i.tier)]
            known = sorted({i.name for i in self._instances})
        if not found:
            place = "" if where is None else f" in tier {where!r}"
            raise UnknownName(f"no living instance of {name!r}{place}; there are {known}.")
        return found

    def _storage(self, tier: str, nbytes: int, device: int) -> Storage:
        if tier in _IN_MEMORY:
            return _IN_MEMORY[tier](nbytes, device)
        if self._file is None:
            self._file = SpillFile(self._directory)
        return DiskStorage(nbytes, self._file)

    def _forget(self, instance: PhysicalInstance, ticket: int) -> None:
        with self._lock:
            self._instances = [i for i in self._instances if i is not instance]
            self.accounts[instance.tier].release(ticket)

    def _require_open(self) -> None:
        if self._closed:
            raise InvalidState(
                f"{user_line()}: this HierarchyRuntime is closed; make another, or close it later."
            )

    @staticmethod
    def _require_pair(source: PhysicalInstance, target: PhysicalInstance) -> None:
        for instance in (source, target):
            if not isinstance(instance, PhysicalInstance):
                raise InvalidType(
                    "transfer: expected instances that `allocate` returned, got "
                    f"{type(instance).__name__}."
                )
            if instance.closed:
                raise InvalidState(
                    f"{user_line()}: transfer: expected two instances that live, got {instance!r}; "
                    "allocate another, or close it later."
                )
        what = [(i.name, i.version, i.capacity_bytes) for i in (source, target)]
        if source is target or what[0] != what[1]:
            twice = f"{source!r} twice" if source is target else f"{source!r} and {target!r}"
            raise InvalidValue(
                f"transfer: expected two instances of one name, version and size, got {twice}; "
                "allocate a second one like the first."
            )


def _require_count(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValue(f"{what}: expected an int of at least 0, got {value!r}.")


def _device_index(device: str) -> int:
    kind, _, index = str(device).partition(":")
    if kind not in ("cpu", "cuda") or not (index or "0").isdecimal():
        raise InvalidValue(f"device: expected 'cuda' or 'cuda:N', got {device!r}.")
    return int(index or 0) if kind == "cuda" else 0
