"""How what is missing is installed: from a checkout, since nobody publishes splitserve."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The command for one of pyproject.toml's extras, and where it is typed: with the pins, since
    without them an index gives a torch of another version, and gigabytes of CUDA."""
    return f"pip install -c constraints.txt '.[{extra}]', in a checkout of splitserve"
