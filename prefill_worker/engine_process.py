"""The prefill worker's engine process: `python -m prefill_worker.engine_process`."""

from __future__ import annotations

from engine.process.extension import EngineParts, Extension
from engine.process.main import engine_main
from worker.kv.open_port import open_port


def make_exporter(parts: EngineParts) -> Extension:
    """An ExtensionFactory. It is read from, and reads when it takes over a prefix."""
    return open_port(parts, reads_by_trade=False)


if __name__ == "__main__":
    engine_main(make_exporter, rank_module="prefill_worker.rank_process")
