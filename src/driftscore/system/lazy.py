"""Values of an object that are computed when they are first read, and kept.

`functools.cached_property` of Python 3.11 holds a lock while it computes. A process that is forked
in that moment by another thread inherits the lock, which nobody there releases: reading the value
would wait for ever. Without a lock two threads may both compute a value, as in later Pythons; the
first one is kept.
"""

from collections.abc import Callable
from typing import Generic, TypeVar, overload

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class lazy_property(Generic[Owner, Value]):  # noqa: N801 (a decorator)
    """A property that is computed once, without a lock."""

    def __init__(self, compute: Callable[[Owner], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "lazy_property[Owner, Value]": ...

    @overload
    def __get__(self, instance: Owner, owner: type) -> Value: ...

    def __get__(self, instance: Owner | None, owner: type) -> "lazy_property[Owner, Value] | Value":
        if instance is None:
            return self
        return vars(instance).setdefault(self._name, self._compute(instance))
