"""An engine process that misbehaves as its worker id says: -m tests.worker.odd_process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import torch

from cluster.errors import ConfigError
from engine.contract.commands import Command
from engine.contract.spec import EngineSpec
from engine.model.load_phases import PhaseProgress
from engine.model.ragged_batch import RaggedBatch
from engine.process.extension import EngineParts, Extension, NoExtension, no_extension
from engine.process.fake_process import load_fake_replica
from engine.process.main import engine_main
from engine.runner.model_runner import ModelRunner, Replica

HELPER_LIVES_S = 60
STEP_S = 1.5


def work_long() -> None:
    end_s = time.monotonic() + STEP_S
    while time.monotonic() < end_s:
        pass


class OddRunner:
    """A fake runner whose forward is odd."""

    def __init__(self, runner: ModelRunner, oddity: str) -> None:
        self._runner = runner
        self._oddity = oddity
        self.copy_blocks = runner.copy_blocks

    def forward(self, batch: RaggedBatch) -> torch.Tensor:
        if self._oddity == "hangs in a step":
            threading.Event().wait()
        if self._oddity == "works long in a step":
            work_long()
        if self._oddity == "waits for a thread":
            team = threading.Thread(target=work_long)
            team.start()
            team.join()
        if self._oddity == "loses its device":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self._runner.forward(batch)


def load(spec: EngineSpec, progress: PhaseProgress) -> Replica:
    """A ReplicaLoader."""
    oddity = spec.worker_id
    if oddity == "never starts":
        progress("odd weights", 0.5)
        signal.pause()
    if oddity == "leaves a helper":
        sleep = f"import time; time.sleep({HELPER_LIVES_S})"
        helper = subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True)
        print(f"helper {helper.pid}", file=sys.stderr, flush=True)
        os._exit(3)
    replica = load_fake_replica(spec, progress)
    return replace(replica, runner=OddRunner(replica.runner, oddity))


class LosesItsPool(NoExtension):
    """Fails for good with the first command."""

    def handle(self, command: Command) -> bool:
        raise ConfigError("the pool of GPU 3 is gone")


class HangsInItsEnd(LosesItsPool):
    """And says that it works."""

    def close(self) -> None:
        while True:
            pass


def make_extension(parts: EngineParts) -> Extension:
    """An ExtensionFactory."""
    if parts.spec.worker_id == "loses its pool":
        return LosesItsPool()
    if parts.spec.worker_id == "hangs in its end":
        return HangsInItsEnd()
    return no_extension(parts)


if __name__ == "__main__":
    engine_main(make_extension, load=load)
