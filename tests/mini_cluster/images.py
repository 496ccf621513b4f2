"""What the images of a cluster hold, of which there is only the name here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).parents[2]
_ROUTER_PYTHON = "SPLITSERVE_ROUTER_PYTHON"
"""An environment without torch, where `make test` has made one."""


def _environ() -> dict[str, str]:
    """No setting of this process's reaches a container but where programs and modules are."""
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    return {"PATH": path, "PYTHONPATH": str(PROJECT), "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class Image:
    """A program of this machine's."""

    entrypoint: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=_environ)
    needs: Sequence[Path] = (PROJECT, Path(sys.prefix), Path(sys.base_prefix))
    """Folders that it sees wherever it mounts its volumes."""


def _splitserve(python: str) -> Image:
    """As the Dockerfile's ENTRYPOINT has it, from an environment of this machine."""
    needs = (PROJECT, Path(python).parents[1], Path(sys.base_prefix))
    return Image((python, "-P", "-m", "cli"), needs=needs)


def project_images() -> dict[str, Image]:
    """By the repositories that the chart names."""
    router = os.environ.get(_ROUTER_PYTHON, sys.executable)
    return {
        "localhost/splitserve/router": _splitserve(router),
        "localhost/splitserve/worker": _splitserve(sys.executable),
    }


def repository_of(image: str) -> str:
    """Without tag and digest."""
    name = image.partition("@")[0]
    head, _, last = name.rpartition("/")
    return "/".join(filter(None, (head, last.partition(":")[0])))
