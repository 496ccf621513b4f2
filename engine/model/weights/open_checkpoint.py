"""A card's weights as a Checkpoint: by format, by the names its tensors have, by quantization; and
a rank's part of them."""

from __future__ import annotations

from cluster.models.card import CheckpointFormat, ModelCard
from cluster.models.column_unit import fitting_split, stored_matrices
from cluster.models.hf.pooling import causal_name
from cluster.models.model_split import ModelSplit
from cluster.models.tensors import expected_shapes
from engine.contract.weight_format import WeightFormat
from engine.model.weights.bare_names import BareNames, are_bare
from engine.model.weights.checkpoint import Checkpoint
from engine.model.weights.gguf_checkpoint import GgufCheckpoint
from engine.model.weights.mixtral_names import MIXTRAL, MixtralNames
from engine.model.weights.quantized_checkpoint import QuantizedCheckpoint
from engine.model.weights.safetensors_checkpoint import SafetensorsCheckpoint


def open_checkpoint(card: ModelCard) -> Checkpoint:
    """Raises BadCheckpoint for a file that is missing, truncated or not of the card's format."""
    if card.format is CheckpointFormat.GGUF:
        return GgufCheckpoint(card.weight_files, card.architecture, card.config)
    files = SafetensorsCheckpoint(card.weight_files)
    stored: Checkpoint = BareNames(files) if are_bare(files.names()) else files
    if causal_name(card.architecture) == MIXTRAL:
        stored = MixtralNames(stored)
    if card.quantization is None:
        return stored
    return QuantizedCheckpoint(stored, card.quantization, expected_shapes(card.config).keys())


def fitted_split(card: ModelCard, split: ModelSplit, form: WeightFormat) -> ModelSplit:
    """`split` in whole groups of what is stored: made once for a rank, whose memory is planned with
    it, and whose loader reads by it. Of the files only what describes them is read.

    Raises ConfigError for ranks that would cut a group, and as `open_checkpoint`.
    """
    if split.rank.is_alone:
        return split
    matrices = stored_matrices(card.config, open_checkpoint(card).inputs_per_scale)
    return fitting_split(split, form, matrices)
