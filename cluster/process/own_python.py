"""How this installation starts a module of its own in a new process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import cluster


def module_argv(module: str, *words: str) -> tuple[str, ...]:
    """This interpreter. `-P` keeps folders of the working directory, such as another `router`, off
    the import path."""
    return (sys.executable, "-P", "-m", module, *words)


def module_environ() -> dict[str, str]:
    """To be added to the environment: the checkout's path where splitserve is not installed."""
    root = Path(cluster.__path__[0]).parent
    if "site-packages" in root.parts:
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))}
