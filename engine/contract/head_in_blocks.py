"""A head whose keys and values lie in the model's own blocks, as further layers of each.

    rank 0   | layers of the model ... | the head's layer | marks: a name, the last token's state |
    others   | layers of the model ... |

So they are cached, digested and handed over with the block, and whoever reads it has the same head:
its identity is part of the pairing. Of a group of ranks, which share the model's layers by KV
heads, the first has the head, and its part of every block whole: what travels is the same between
groups of any sizes. Where that cannot be, the head has a pool of its own and begins cold behind
cached blocks and handoffs: where its keys and values have another shape than the model's, and where
nobody asked for it by name, as a worker without room leaves it out and pairs all the same. No
torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cluster.kv_shape import KvShape
from cluster.models.group_split import sharing_of
from cluster.models.heads.prediction import with_prediction_layer
from cluster.sharding import RowSharing
from engine.contract.spec import EngineSpec

MARK_BYTES = 8
"""Of a block's mark: see engine/memory/head_blocks.py."""
STATE_ITEM_BYTES = 4
"""Of a state's values, float32."""
_VERSION = 1
"""Of how pairs and marks lie in a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadInBlocks:
    """What every block of the rank that has the head has room for beside the model."""

    num_layers: int
    """Beyond the model's, of all its KV heads: the head's own, and those that its marks take."""
    num_kv_heads: int
    """Of each of them."""
    hidden_size: int
    """Values of the state that a mark has."""
    identity: str
    """Kind and digest: equal where equal states give equal keys and values."""

    def layers_at(self, num_kv_heads: int) -> int:
        """What it takes of a pool that has so many KV heads of each layer, in layers of that."""
        return -(-self.num_layers * self.num_kv_heads // num_kv_heads)


def head_in_blocks(spec: EngineSpec) -> HeadInBlocks | None:
    """None: the engine has no head, or its blocks have no room for it. Raises as `sharing_of`."""
    makes_text = spec.pooling is None or spec.pooling.generates
    if spec.heads is None or not makes_text:
        return None
    if sharing_of(spec.options, spec.card.config) is not RowSharing.ALL:
        return None  # no rank has the states of all rows
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
        num_kv_heads=kept.num_kv_heads,
        hidden_size=hidden_size,
        identity=f"{kind}:{_VERSION}",
    )


def whole_layers(spec: EngineSpec) -> int:
    """Layers of every block that the first rank has whole, beside those that ranks share."""
    room = head_in_blocks(spec)
    return 0 if room is None else room.num_layers


def _layers_of_marks(spec: EngineSpec, layer: KvShape, hidden_size: int) -> int:
    block_size = spec.options.block_size_tokens
    layer_bytes = block_size * layer.token_bytes(dtype=spec.dtype, kv=spec.kv)
    return -(-(MARK_BYTES + STATE_ITEM_BYTES * hidden_size) // layer_bytes)
