"""One configurable decoder over paged KV; docs/models.md lists the families it runs.

    token_ids -> embedding -> [ norm, QKV, rotate + write KV, attend, O, norm, gate-up, down ] x L
              -> rows whose logits are wanted -> norm -> LM head -> float32 logits
                                                '- of a model that pools -> float32 hidden states

The residual stream is float32; matrices and the pool are in the decoder's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from cluster.home import kernels_folder
from cluster.models.card import ModelCard
from cluster.models.expert_placement import ExpertPlacement
from cluster.models.model_split import ModelSplit
from cluster.models.pooling import Pooling
from engine.contract.weight_format import WeightFormat
from engine.memory.kv_pool import KvPool
from engine.model.adapters.bank import AdapterBank, AdapterRoom
from engine.model.expert_picks import ExpertPicks
from engine.model.layers.build import LayerBuilder
from engine.model.layers.decoder_layer import DecoderLayer
from engine.model.layers.rope_table import RopeTables
from engine.model.load_phases import PhaseProgress, silent
from engine.model.ragged_batch import RaggedBatch
from engine.model.rank_place import RankPlace
from engine.model.rank_tape import check_ranks, rank_tape
from engine.model.routed_experts import ExpertSource, RoutedExperts
from engine.model.weights.decoder_weights import DecoderWeights
from kernels.dispatch.kernel_sets import kernels_for, prepare_kernels
from kernels.linear import Linear
from kernels.tape.collective import Collective
from kernels.tape.kernel_set import KernelSet
from kernels.tape.play import player_of
from kernels.tape.recording import Player, Recording
from kernels.tape.rows import Rows, VocabularyPart
from kernels.tape.tape import Tape


class Decoder:
    """One replica's model, or a rank's part of it. Not thread-safe: one step at a time."""

    def __init__(
        self,
        weights: DecoderWeights,
        kernels: KernelSet,
        *,
        collective: Collective | None = None,
        logits_at: int | None = None,
        adapters: AdapterRoom | None = None,
        progress: PhaseProgress = silent,
        pooling: Pooling | None = None,
        states_of: Sequence[int] = (),
    ) -> None:
        """`adapters`: None: no row of a step has one. `collective`: of the ranks that share the
        matrices, an ExpertCollective where they exchange rows; None: this rank has all of them.
        `logits_at`: see RankPlace. `pooling`: None: logits alone are made. `states_of`: layers
        whose input steps leave for `states`; that behind the last one stands for the final norm,
        whose last layer is then computed for all rows."""
        check_ranks(weights.split.rank, collective)
        self.config, self.split = weights.config, weights.split
        self._logits_at, self._states_of = logits_at, frozenset(states_of)
        self.dtype, self.device = weights.dtype, weights.device
        self._kernels = kernels
        self._embedding = kernels.pack_linear(weights.embedding())
        self._embedding_scale = torch.tensor(self.config.embedding_scale).to(self.dtype).item()
        rope = RopeTables.of(self.config, weights.rope_divisors(), self.device)
        picks = _picks(self.split, self.device)
        self.bank = self._bank_of(adapters)
        """Of adapters; None: there is no room for any."""
        builder = LayerBuilder(
            split=self.split, kernels=kernels, rope=rope, picks=picks, bank=self.bank
        )
        self._layers = _layers(builder, weights, progress)
        self._final_norm = weights.final_norm()
        head = weights.lm_head()
        self._lm_head = self._embedding if head is None else kernels.pack_linear(head)
        source = _expert_source(weights, kernels, picks)
        self.experts = RoutedExperts(self.split, builder.experts, source, collective)
        new_tape = partial(rank_tape, self.dtype, self.split, collective)
        self._player, self._pooled = self._players(new_tape, pooling)
        self._adapting, self._pooled_adapting = self._player, self._pooled
        """Play steps in which a row has an adapter: other recordings, so that no other step has
        one operation more."""
        if self.bank is not None:
            new_tape = partial(new_tape, has_adapters=True)
            self._adapting, self._pooled_adapting = self._players(new_tape, pooling)
        self._last = self._player

    @classmethod
    def load(
        cls,
        card: ModelCard,
        dtype: torch.dtype,
        device: str | torch.device,
        progress: PhaseProgress = silent,
        *,
        weights: WeightFormat = WeightFormat.FULL,
        max_context_tokens: int | None = None,
        place: RankPlace | None = None,
        adapters: AdapterRoom | None = None,
        pooling: Pooling | None = None,
        states_of: Sequence[int] = (),
    ) -> Decoder:
        """Reads the card's checkpoint. Raises BadCheckpoint or UnsupportedModel.

        In its `place` in a group only a rank's part is read, and its steps run together with the
        others'; None: it is alone.

        `weights` is resolved, and what this device has kernels for (engine/runner/gpu_formats.py).
        Positions from `max_context_tokens` on are never used: their rotations are not kept.
        `pooling`: that its steps may be asked for. `states_of`: layers whose input steps leave for
        `states`, of a rank that has all rows.
        """
        device = torch.device(device)
        place = RankPlace(split=ModelSplit(config=card.config)) if place is None else place
        split = place.split
        if max_context_tokens is not None:
            config = replace(card.config, max_context_tokens=max_context_tokens)
            split = replace(split, config=config)
        progress("open checkpoint", 0.0)
        reader = DecoderWeights(card, dtype, device, weights, split=split)
        progress("prepare kernels", 0.0)
        folder = kernels_folder()
        prepare_kernels(device, folder, lambda fraction: progress("prepare kernels", fraction))
        kernels = kernels_for(device, folder)
        with torch.inference_mode():
            return cls(
                reader,
                kernels,
                collective=place.collective,
                logits_at=place.logits_at,
                adapters=adapters,
                progress=progress,
                pooling=pooling,
                states_of=states_of,
            )

    @property
    def embedding(self) -> Linear:
        """Of all tokens, or of this rank's: what is beside the model may read it."""
        return self._embedding

    @property
    def lm_head(self) -> Linear:
        """As the embedding."""
        return self._lm_head

    @property
    def kernels(self) -> KernelSet:
        """What computes it, for what is beside it."""
        return self._kernels

    @property
    def num_native_calls(self) -> int:
        """Calls of a native library that a step is; 0: it goes kernel by kernel."""
        return self._player.num_native_calls

    @property
    def has_alike_rows(self) -> bool:
        """See Player; of steps without adapters, and of those with them."""
        return self._player.has_alike_rows and self._adapting.has_alike_rows

    @property
    def why_by_kernels(self) -> str:
        """See Player."""
        return self._player.why_by_kernels

    @property
    def kernel_set(self) -> str:
        """Name of the kernels in use."""
        return self._kernels.name

    @property
    def num_bytes(self) -> int:
        """Memory of the weights."""
        ends = {self._embedding, self._lm_head}
        adapters = 0 if self.bank is None else self.bank.num_bytes
        layers = sum(layer.num_bytes for layer in self._layers)
        return sum(m.num_bytes for m in ends) + layers + adapters

    def place_experts(self, layer: int, placement: ExpertPlacement) -> bool:
        """See RoutedExperts.place: all ranks call it between the same two steps."""
        return self.experts.place(layer, placement)

    def forward(self, batch: RaggedBatch, kv: KvPool) -> torch.Tensor:
        """Writes the batch's KV into the pool; returns logits, float32 [num_logits, vocab_size]; of
        no use at a rank that does not want them. Of a batch that is pooled, and of a model that
        does nothing else, hidden states, float32 [num_logits, hidden].

        Block tables and slots are trusted; a wrong one corrupts other sequences.
        """
        if batch.is_pooled:
            pooled = self._pooled if batch.adapters is None else self._pooled_adapting
            assert pooled is not None, "a model that does not pool"
            return pooled(batch, kv.tensor)
        self._last = self._player if batch.adapters is None else self._adapting
        return self._last(batch, kv.tensor)

    def states(self) -> torch.Tensor:
        """Of the last step that made logits: the residual as it came into each of `states_of`, in
        the layers' order, float32 [num_tokens, num_layers * hidden]; the caller's own."""
        return torch.cat(self._last.left(), dim=1)

    def _bank_of(self, room: AdapterRoom | None) -> AdapterBank | None:
        if room is None:
            return None
        return AdapterBank(self.split, room, dtype=self.dtype, device=self.device)

    def _players(
        self, new_tape: Callable[[], Tape], pooling: Pooling | None
    ) -> tuple[Player, Player | None]:
        """Of steps that want logits, and of pooled ones, where any are; a model that makes no text
        has these alone."""
        if pooling is None:
            return player_of(self._record(new_tape), self._kernels), None
        pooled = player_of(self._record(new_tape, pooled=True), self._kernels)
        if not pooling.generates:
            return pooled, pooled
        return player_of(self._record(new_tape), self._kernels), pooled

    def _record(self, new_tape: Callable[[], Tape], *, pooled: bool = False) -> Recording:
        """The forward. The last feed-forward runs for wanted rows only, unless all are left."""
        tape = new_tape()
        eps, last = self.config.rms_norm_eps, len(self._layers) - 1
        leaves_end = last + 1 in self._states_of and not pooled
        residual = self._embed(tape)
        if self._embedding_scale != 1.0:
            tape.scale(residual, self._embedding_scale)  # rounded to the dtype, as in training
        x = tape.rms_norm(residual, self._layers[0].input_norm, eps)
        for index, layer in enumerate(self._layers):
            if index in self._states_of and not pooled:
                tape.leave(residual)
            attended = layer.attention.attend(tape, tape.from_residual(x), index)
            if index == last and not leaves_end:
                attended, wanted = tape.keep_wanted(attended, tape.from_residual(residual))
                residual = tape.own_rows(wanted)
            branch = layer.attention.project(tape, attended)
            x = tape.add_rms_norm(branch, residual, layer.feed_forward_norm, eps)
            branch = layer.feed_forward.record(tape, x)
            after = self._final_norm if index == last else self._layers[index + 1].input_norm
            x = tape.add_rms_norm(branch, residual, after, eps)
        if leaves_end:
            tape.leave(tape.hidden(residual, self._final_norm, eps))
            (x,) = tape.keep_wanted(x)
        if pooled:  # the same norm once more, unrounded and at a place of its own
            hidden = tape.hidden(residual, self._final_norm, eps)
            return tape.finish(tape.from_residual(hidden))
        return tape.finish(self._logits(tape, tape.from_residual(x)))

    def _embed(self, tape: Tape) -> Rows:
        """Summed over the ranks, where each has a part of the vocabulary."""
        if self.split.dense_rank.is_alone:
            return tape.embed(self._embedding)
        part = VocabularyPart(
            first_token=self.split.tokens.start, vocab_size=self.config.vocab_size
        )
        return tape.embed_part(self._embedding, part)

    def _logits(self, tape: Tape, x: Rows) -> Rows:
        """Of all ranks, where each has a part of the head; what only fills it up is cut off."""
        logits = tape.logits(self._lm_head, x)
        if self.split.dense_rank.is_alone:
            return logits
        width, root = self.config.vocab_size, self._logits_at
        return tape.all_gather(logits, "gathered logits", width, root=root)


def _layers(
    builder: LayerBuilder, weights: DecoderWeights, progress: PhaseProgress
) -> list[DecoderLayer]:
    """All of them, in order."""
    layers, num_layers = list[DecoderLayer](), weights.config.num_layers
    for index in range(num_layers):
        layers.append(builder.layer(index, weights.layer(index)))
        progress("load weights", (index + 1) / num_layers)
    return layers


def _expert_source(
    weights: DecoderWeights, kernels: KernelSet, picks: ExpertPicks | None
) -> ExpertSource | None:
    """Where experts that change their ranks come from; None: none do."""
    if picks is None:
        return None
    return ExpertSource(reopen=weights.reopen, kernels=kernels, picks=picks)


def _picks(split: ModelSplit, device: torch.device) -> ExpertPicks | None:
    """Where a group's experts are counted; a single rank has nothing to balance."""
    mixture = split.config.mixture
    if mixture is None or split.rank.is_alone:
        return None
    return ExpertPicks.none_yet((split.config.num_layers, mixture.num_experts), device)
