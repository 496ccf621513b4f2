"""How a field of an options dataclass is declared: its default, its help text, its limits."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from cluster.option_value import TextForm

_HOST = TextForm(
    "[^:]*", "an IPv4 address, or a name of one, without a port; IPv6 is not supported yet"
)
_ENDPOINT = TextForm(
    r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}/?",
    "http://HOST:PORT or https://HOST:PORT",
)


def option(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field with its help text and its limits; the unit stands in the field's name.

    The limits include both ends. `cluster/options.py` checks them where an operator's values
    enter.
    """
    metadata = {"help": help, "low": low, "high": high, "choices": choices}
    if isinstance(default, type) or callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def host_option(default: str | None, help: str) -> Any:
    """A field for an IPv4 address or a name of one."""
    return field(default=default, metadata={"help": help, "form": _HOST})


def endpoint_option(default: str | None, help: str) -> Any:
    """A field for the URL of a port that others serve, without a path."""
    return field(default=default, metadata={"help": help, "form": _ENDPOINT})


def text_option(default: str | None, help: str, form: TextForm) -> Any:
    """A field for a text that has to look like something."""
    return field(default=default, metadata={"help": help, "form": form})


def port_option(default: int, help: str) -> Any:
    """A field for a TCP port; 0 takes a free one."""
    return option(default, help, low=0, high=65_535)
