"""The model's own layer for further tokens under `--speculation auto`: taken where it can be, and
left out, with a line in the log, where asking for it by name would be refused or be for nothing.
"""

from __future__ import annotations

import structlog
import torch

from cluster.errors import BadCheckpoint, ConfigError, OutOfBlocks
from cluster.home import kernels_folder
from cluster.models.model_split import ModelSplit
from engine.contract.spec import EngineSpec
from engine.contract.weight_format import WeightFormat
from engine.memory.budget import plan_memory
from engine.model.decoder import Decoder
from engine.model.weights.prediction_weights import why_unfit
from engine.runner.draft_heads import HeadsSize, heads_size
from engine.runner.draft_model import DraftSize
from engine.runner.loaded_heads import LoadedHeads
from engine.runner.own_layers import OwnLayerSize
from engine.runner.portion import Portion
from engine.runner.replica_size import ReplicaSize
from kernels.dispatch.kernel_sets import kernels_for

_LOG = structlog.get_logger()
_Heads = HeadsSize | OwnLayerSize


def sized(
    spec: EngineSpec,
    portion: Portion,
    split: ModelSplit,
    device: torch.device,
    *,
    weights: WeightFormat,
    draft: DraftSize | None,
) -> tuple[_Heads | None, ReplicaSize]:
    """What of a head is here, and the replica beside it. `draft`: of a model that guesses in its
    place. Raises as heads_size and ReplicaSize.of, but for a head that nobody has named."""
    if not _is_optional(spec):
        heads = heads_size(spec, portion, device)
        drafter = heads if draft is None else draft
        size = ReplicaSize.of(spec, portion, split, device, drafter)
        return None if size.why_no_drafts is not None else heads, size
    try:
        if (why := _why_for_nothing(spec, portion)) is not None:
            raise ConfigError(why)
        heads = heads_size(spec, portion, device)
        if (why := _why_not_here(spec, device)) is not None:
            raise ConfigError(why)
        size = ReplicaSize.of(spec, portion, split, device, heads)
        plan_memory(size.memory_request(spec, weights))
    except (ConfigError, OutOfBlocks) as error:
        _leave_out(str(error))
        return None, ReplicaSize.of(spec, portion, split, device)
    return heads, size


def loaded(
    spec: EngineSpec, heads: _Heads, decoder: Decoder, *, context_tokens: int
) -> LoadedHeads | None:
    """As its `load`. None: it was left out, which only a form of the model that the kernels do not
    have comes to so late, and a tensor that cannot be read: its room is planned by then, and
    stays."""
    if not _is_optional(spec):
        return heads.load(decoder, context_tokens=context_tokens)
    if not decoder.has_alike_rows:
        _leave_out(f"the model's rows differ by batch ({decoder.kernel_set})")
        return None
    try:
        return heads.load(decoder, context_tokens=context_tokens)
    except BadCheckpoint as error:
        _leave_out(str(error))
        return None


def _is_optional(spec: EngineSpec) -> bool:
    return spec.heads is not None and spec.heads.is_optional


def _why_for_nothing(spec: EngineSpec, portion: Portion) -> str | None:
    if spec.kv != "auto":
        return "the cache is quantized, and its rows differ by batch"
    if not portion.rank.is_alone:
        return "one rank of a group would have all of it; choose --speculation heads"
    return None


def _why_not_here(spec: EngineSpec, device: torch.device) -> str | None:
    """Seen before memory is planned for it: many checkpoints are written without its tensors, and
    some were altered."""
    kernels = kernels_for(device, kernels_folder())
    if kernels.has_alike_rows is None:
        return f"the model's rows differ by batch ({kernels.name})"
    return why_unfit(spec.card)


def _leave_out(why: str) -> None:
    _LOG.info("coming tokens are not guessed by the model's own layer", why=why)
