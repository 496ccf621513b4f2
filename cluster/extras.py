"""How what is missing is installed: from a checkout, since nobody publishes splitserve."""

from __future__ import annotations

EXTRAS = {
    "torch": "worker",
    "triton": "worker",
    "safetensors": "worker",
    "nixl_cu12": "worker",
    "kubernetes": "kubernetes",
}
"""By the module that a command misses, the extra of pyproject.toml that it comes with."""


def how_to_install(extra: str) -> str:
    """The command, and where it is typed: with the pins, since without them an index gives a torch
    of another version, and gigabytes of CUDA."""
    return f"pip install -c constraints.txt '.[{extra}]', in a checkout of splitserve"
