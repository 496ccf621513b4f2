"""A head whose keys and values lie in the model's own blocks, as further layers of each.

    | layers of the model ... | the head's layer | marks: a name, and the state of the last token |

So they are cached, digested and handed over with the block, and whoever reads it has the same head:
its identity is part of the pairing. Where that cannot be, the head has a pool of its own and begins
cold behind cached blocks and handoffs: in a group of ranks, which share a block by KV heads, where
its keys and values have another shape than the model's, and where nobody asked for it by name, as a
worker without room leaves it out and pairs all the same. No torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cluster.kv_shape import KvShape
from cluster.models.heads.prediction import with_prediction_layer
from engine.contract.spec import EngineSpec

MARK_BYTES = 8
"""Of a block's mark: see engine/memory/head_blocks.py."""
STATE_ITEM_BYTES = 4
"""Of a state's values, float32."""
_VERSION = 1
"""Of how pairs and marks lie in a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadInBlocks:
    """What every block has room for beside the model."""

    num_layers: int
    """Beyond the model's: the head's own, and those that its marks take."""
    hidden_size: int
    """Values of the state that a mark has."""
    identity: str
    """Kind and digest: equal where equal states give equal keys and values."""


def head_in_blocks(spec: EngineSpec) -> HeadInBlocks | None:
    """None: the engine has no head, or its blocks have no room for it."""
    makes_text = spec.pooling is None or spec.pooling.generates
    if spec.heads is None or spec.options.tensor_parallel_size > 1 or not makes_text:
        return None
    config, card = spec.card.config, spec.heads.card
    kept = replace(config.kv_shape, num_layers=1)
    if card is None:
        if not config.num_prediction_layers or spec.heads.is_optional:
            return None
        shape = replace(with_prediction_layer(config).kv_shape, num_layers=1)
        hidden_size, kind = config.hidden_size, "own-layer"
    else:
        shape, hidden_size = card.config.layer.kv_shape, card.config.layer.hidden_size
        kind = f"eagle3:{card.weights_digest}"
    if shape != kept:
        return None
    return HeadInBlocks(
        num_layers=1 + _layers_of_marks(spec, kept, hidden_size),
        hidden_size=hidden_size,
        identity=f"{kind}:{_VERSION}",
    )


def _layers_of_marks(spec: EngineSpec, layer: KvShape, hidden_size: int) -> int:
    block_size = spec.options.block_size_tokens
    layer_bytes = block_size * layer.token_bytes(dtype=spec.dtype, kv=spec.kv)
    return -(-(MARK_BYTES + STATE_ITEM_BYTES * hidden_size) // layer_bytes)
