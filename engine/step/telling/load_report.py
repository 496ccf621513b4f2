"""The engine's state in numbers, said when it has changed and not more than 20 times a second."""

from __future__ import annotations

from cluster.deadline import Clock
from cluster.generation import EngineLoad
from engine.memory.block_pool import BlockPool, BlockState
from engine.sampling.grammars.meter import GrammarMeter
from engine.step.meters.load_meter import LoadMeter
from engine.step.requests.lifecycle import SequenceState
from engine.step.requests.table import RequestTable

_INTERVAL_S = 0.05


class LoadReport:
    """Knows what was said last."""

    def __init__(
        self,
        pool: BlockPool,
        table: RequestTable,
        meter: LoadMeter,
        *,
        grammars: GrammarMeter,
        clock: Clock,
    ) -> None:
        self._pool = pool
        self._table = table
        self._meter = meter
        self._grammars = grammars
        self._clock = clock
        self._last: EngineLoad | None = None
        self._said_s = -_INTERVAL_S

    def due(self, *, at_once: bool) -> EngineLoad | None:
        """The load when it is news; `at_once` skips the interval."""
        now_s = self._clock()
        if now_s - self._said_s < _INTERVAL_S and not at_once:
            return None
        load = self.now()
        if load == self._last:
            return None
        self._last, self._said_s = load, now_s
        return load

    def now(self) -> EngineLoad:
        """The numbers of this moment. `kv_bytes_per_s` is the extension's to fill in."""
        counts, pool, meter = self._table.counts, self._pool, self._meter
        token_ms, pair_ms = meter.costs.told_chunk_ms
        return EngineLoad(
            num_running=counts[SequenceState.DECODING],
            num_waiting=counts[SequenceState.QUEUED] + counts[SequenceState.RECEIVING],
            waiting_prefill_tokens=self._table.num_waiting_tokens(),
            total_blocks=pool.num_blocks,
            free_blocks=pool.count(BlockState.FREE),
            cached_blocks=pool.count(BlockState.CACHED),
            active_blocks=pool.count(BlockState.ACTIVE),
            exported_blocks=pool.count(BlockState.EXPORTED),
            receiving_blocks=pool.count(BlockState.RECEIVING),
            num_leases=counts[SequenceState.EXPORTED] + counts[SequenceState.RECEIVING],
            prefill_tokens_per_s=meter.prefill.per_s,
            decode_step_ms=meter.decode.mean_ms,
            num_preemptions=meter.num_preemptions,
            step_gap_p99_ms=meter.step_gap_p99_ms,
            waiting_prompts=self._table.num_waiting_prompts(),
            decode_row_ms=meter.costs.told_row_ms,
            prefill_token_ms=token_ms,
            prefill_pair_ms=pair_ms,
            home_blocks_left=self._blocks_left(),
            prefill_busy_s=meter.prefill_busy_s,
            decode_busy_s=meter.decode_busy_s,
            prefilled_tokens=meter.num_prefilled_tokens,
            decoded_tokens=meter.num_decoded_tokens,
            compiled_grammars=self._grammars.num_compiled,
            grammar_compile_s=self._grammars.compile_s,
            grammar_masks=self._grammars.num_masks,
            grammar_mask_s=self._grammars.mask_s,
        )

    def _blocks_left(self) -> tuple[int, ...]:
        """Of each home, where there are several."""
        num_homes = self._pool.homes.num_homes
        return tuple(map(self._pool.available_at, range(num_homes))) if num_homes > 1 else ()
