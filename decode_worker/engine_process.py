"""The decode worker's engine process: `python -m decode_worker.engine_process`."""

from __future__ import annotations

from engine.process.extension import EngineParts, Extension
from engine.process.main import engine_main
from worker.kv.open_port import open_port


def make_intake(parts: EngineParts) -> Extension:
    """An ExtensionFactory. It reads, and is read from when a prefix is taken over."""
    return open_port(parts, reads_by_trade=True)


if __name__ == "__main__":
    engine_main(make_intake, rank_module="decode_worker.rank_process")
