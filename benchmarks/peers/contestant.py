"""An engine under comparison: a process that is asked in turn and frozen in between."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.process_group import ProcessGroup
from engine.contract.environ import TORCH_ENVIRON

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How a contestant is started."""

    name: str
    command: tuple[str, ...]
    env: dict[str, str]


class Contestant:
    """Started by the constructor, which returns once the engine is loaded, and frozen."""

    def __init__(self, entry: Entry, log: Path) -> None:
        self.name = entry.name
        self.group = ProcessGroup(entry.command, log=log, env=entry.env, cwd=ROOT)
        self.about: dict[str, str] = self._read()
        self.group.freeze()

    def generate(self, prompts: Sequence[list[int]], max_tokens: int) -> tuple[float, Any]:
        """Seconds inside the engine, and the tokens per prompt."""
        self.group.thaw()
        self.group.stdin.write(
            json.dumps({"prompts": list(prompts), "max_tokens": max_tokens}) + "\n"
        )
        answer = self._read()
        self.group.freeze()
        return answer["seconds"], answer["tokens"]

    def _read(self) -> Any:
        line = self.group.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: {self.group.last_words()}")
        return json.loads(line)


def home() -> Path:
    """Where benchmarks/peers/install.sh puts environments."""
    chosen = os.environ.get("SPLITSERVE_PEERS")
    return Path(chosen) if chosen else Path.home() / ".cache" / "splitserve-peers"


def python_of(peer: str) -> Path | None:
    """The interpreter of an installed peer."""
    python = home() / peer / "bin" / "python"
    return python if python.exists() else None


def own_entry(model: str, threads: int, weights: str = "auto", kv: str = "auto") -> Entry:
    """This project's engine."""
    command = (sys.executable, "-m", "benchmarks.peers.runner_splitserve", model, str(threads))
    name = "splitserve" if (weights, kv) == ("auto", "auto") else f"splitserve {weights}/{kv}"
    return Entry(name=name, command=(*command, weights, kv), env=dict(TORCH_ENVIRON))


def peer_entry(peer: str, model_path: Path, threads: int) -> Entry | None:
    """An installed peer; None when it is not installed."""
    python = python_of(peer)
    if python is None:
        return None
    command = (str(python), str(HERE / f"runner_{peer}.py"), str(model_path), str(threads))
    return Entry(name=peer, command=command, env={"OMP_NUM_THREADS": str(threads)})
