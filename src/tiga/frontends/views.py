"""Fields as `edge` and `node` see them, whichever way these run."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tiga.errors import InvalidValue


class MissingField(InvalidValue, AttributeError):
    """A field that `edge` or `node` reads was not passed."""


class View:
    """The fields of one end, or of the edges, by name: as attributes and as items.

    `_label` is the argument's name and `_values` has what each field is made of; a subclass says
    how (`_made`). `_where` gives the user's line.
    """

    _label: str
    _values: Mapping[str, Any]
    _where: Callable[[], str]

    def __init__(self, label: str, values: Mapping[str, Any], where: Callable[[], str]) -> None:
        self.__dict__.update(_label=label, _values=values, _where=where)

    def _made(self, name: str) -> Any:
        """The field of a name that there is."""
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        if isinstance(name, str) and name.startswith("__"):
            raise AttributeError(name)
        if name not in self._values:
            raise MissingField(f"{self._where()}: {_missing(self._label, name, self._values)}")
        return self._made(name)

    __getitem__ = __getattr__

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def keys(self) -> Any:
        """The names of the fields."""
        return self._values.keys()

    def __repr__(self) -> str:
        return f"<fields of {self._label}: {', '.join(map(str, self._values)) or 'none'}>"

    def __setattr__(self, name: str, value: Any) -> None:
        raise InvalidValue(
            f"{self._where()}: fields cannot be assigned; use a variable instead of "
            f"`{self._label}.{name}`."
        )


def _missing(end: str, name: str, there: Mapping[str, Any]) -> str:
    both = "" if end == "edge" else ", or `ndata=` if it is one of both ends"
    return (
        f"field `{end}.{name}` is read but was not passed; `{end}` has: "
        f"{', '.join(map(str, there)) or 'none'}. Pass it as `{end}={{{name!r}: ...}}`{both}."
    )
