"""What a test and its ranks tell each other: work by name, and what came of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_type_hints

import msgspec
import torch

from cluster.errors import ConfigError, InternalError, RankLost, WrongGeneration
from ranks.collectives.group_collective import GroupCollective

_ERRORS = {kind.__name__: kind for kind in (ConfigError, InternalError, RankLost, WrongGeneration)}


class Work(msgspec.Struct, frozen=True):
    """A function of a module of tests, and its keyword arguments."""

    function: str
    arguments: dict[str, Any]

    def bound(self) -> Callable[[GroupCollective], object]:
        """To be called with a collective."""
        function = _found(self.function)
        kinds = get_type_hints(function)
        given = {name: _argument(value, kinds[name]) for name, value in self.arguments.items()}
        return partial(function, **given)


class Done(msgspec.Struct, frozen=True, tag=True):
    """What the function has returned."""

    function: str
    value: Any

    def told(self) -> Any:
        """As it was there."""
        kind = get_type_hints(_found(self.function))["return"]
        return msgspec.convert(self.value, kind)


class Failed(msgspec.Struct, frozen=True, tag=True):
    """What it has raised."""

    error: str
    message: str
    ranks: tuple[int, ...] = ()

    def told(self) -> Exception:
        """As it was there, where it is an error of ours."""
        kind = _ERRORS.get(self.error)
        if kind is None:
            return AssertionError(f"{self.error}: {self.message}")
        return kind(self.message, ranks=self.ranks) if self.ranks else kind(self.message)


def packed(work: Callable[..., object]) -> bytes:
    """A function of a module of tests, such as rank_work, or a `partial` of one with arguments by
    name."""
    return msgspec.msgpack.encode(_named(work), enc_hook=_plain)


def answer_to(message: bytes, collective: GroupCollective) -> bytes:
    """Does the work; the answer to it."""
    work = msgspec.msgpack.decode(message, type=Work)
    try:
        answer: Done | Failed = Done(work.function, work.bound()(collective))
    except Exception as error:
        answer = Failed(type(error).__name__, str(error), tuple(getattr(error, "ranks", ())))
    return msgspec.msgpack.encode(answer)


def outcome_of(answer: bytes) -> Any:
    """What the work has returned, or the error that it has raised."""
    return msgspec.msgpack.decode(answer, type=Done | Failed).told()


def _named(work: Callable[..., object]) -> Work:
    if isinstance(work, partial):
        assert not work.args
        return Work(_name_of(work.func), work.keywords)
    return Work(_name_of(work), {})


def _name_of(function: Callable[..., object]) -> str:
    assert function.__module__.startswith("tests."), function
    return f"{function.__module__}:{function.__name__}"


def _found(name: str) -> Callable[..., object]:
    module, _, function = name.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), function)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return _named(value)


def _argument(value: Any, kind: Any) -> Any:
    """Of that type; work that is to be done by work comes with its name."""
    if isinstance(value, Mapping):
        return msgspec.convert(value, Work).bound()
    return msgspec.convert(value, kind, dec_hook=lambda _, name: getattr(torch, name))
