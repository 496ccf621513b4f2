"""An engine process that only says where it keeps what Triton compiles."""

from __future__ import annotations

import os

from cluster.errors import ConfigError
from engine.contract.spec import EngineSpec
from engine.model.load_phases import PhaseProgress
from engine.process.extension import no_extension
from engine.process.main import engine_main
from engine.runner.model_runner import Replica


def refuse(spec: EngineSpec, progress: PhaseProgress) -> Replica:
    """A ReplicaLoader."""
    raise ConfigError(os.environ["TRITON_CACHE_DIR"])


if __name__ == "__main__":
    engine_main(no_extension, load=refuse)
