"""An engine process without a model: `python -m engine.process.fake_process`."""

from __future__ import annotations

from cluster.errors import ConfigError
from engine.contract.spec import EngineSpec
from engine.memory.kv_pool import KvLayout
from engine.model.load_phases import PhaseProgress
from engine.model.weights.decoder_weights import DTYPES
from engine.process.extension import no_extension
from engine.process.fake_runner import fake_replica
from engine.process.main import engine_main
from engine.runner.model_runner import Replica

_DEFAULT_BLOCKS = 256


def load_fake_replica(spec: EngineSpec, progress: PhaseProgress) -> Replica:
    """A ReplicaLoader: the card's shape, the options' pool, the fake's tokens."""
    progress("fake weights", 0.0)
    config, options = spec.card.config, spec.options
    dtype = DTYPES[spec.dtype]
    block_bytes = KvLayout.of(config, options.block_size_tokens, dtype).block_bytes
    num_blocks = _DEFAULT_BLOCKS
    if options.kv_memory_bytes is not None:
        num_blocks = options.kv_memory_bytes // block_bytes
    if num_blocks < 1:
        raise ConfigError(f"kv_memory_bytes must be at least {block_bytes}, one block")
    progress("fake weights", 1.0)
    return fake_replica(
        num_blocks=num_blocks,
        block_size=options.block_size_tokens,
        vocab_size=config.vocab_size,
        eos_token_ids=spec.card.eos_token_ids,
        dtype=dtype,
        shape=config.kv_shape,
        weights=spec.weights,
    )


if __name__ == "__main__":
    engine_main(no_extension, load=load_fake_replica)
