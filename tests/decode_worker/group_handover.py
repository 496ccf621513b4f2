"""Two engines, each a group of real processes, and a prompt that goes from one to the other."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace

from msgspec import structs

from cluster.deadline import Clock
from cluster.generation import PromptToken
from cluster.identity import Role, new_incarnation
from cluster.models.head_share import head_shares
from cluster.sampling import SamplingParams
from decode_worker.engine_process import make_intake
from engine.contract.commands import (
    ChoiceToken,
    Command,
    Connect,
    Fetch,
    GenerateRequest,
    PrefillMode,
    ReleaseExport,
    Seed,
    Submit,
)
from engine.contract.head_in_blocks import whole_layers
from engine.contract.messages import Fetched, Frame, Reserved
from engine.contract.spec import EngineSpec
from engine.offline.queue import Completion, collect
from engine.process.extension import EngineParts, ExtensionFactory
from engine.step.engine import Engine
from prefill_worker.engine_process import make_exporter
from tests.engine.runner.ranks.groups import ForkingSpawner, running
from tests.engine.step.engine_scenario import ROOT
from worker.exchange.block_ledger import BlockLedger
from worker.exchange.source_blocks import BlockSizes

LIMIT_S = 60.0
"""For a whole handover; generous, since machines are busy."""


class Side:
    """An engine and its extension, turned by hand as its process would."""

    def __init__(
        self,
        spec: EngineSpec,
        make: ExtensionFactory,
        rank_module: str,
        closers: ExitStack,
        clock: Clock,
    ) -> None:
        self.spawner = ForkingSpawner(rank_module)
        replica = closers.enter_context(running(spec, self.spawner))
        self._group = replica.group_turn
        self.incarnation = spec.incarnation
        self.block_size = spec.options.block_size_tokens
        self.engine = Engine(replica, spec.options, clock=clock)
        parts = EngineParts(
            spec=spec,
            kv=replica.kv,
            generations=self.engine.placement.pool.generations,
            shares=head_shares(
                spec.card.config,
                spec.options.tensor_parallel_size,
                num_homes=replica.num_homes,
                num_whole_layers=whole_layers(spec),
            ),
            receiving_blocks=self.engine.receiving_blocks,
            line=replica.others,
            num_homes=replica.num_homes,
        )
        self.extension = make(parts)
        self.engine.ask_of_reads(self.extension.has_reads)
        closers.callback(self.extension.close)
        closers.callback(self._let_go)

    def tell(self, command: Command) -> None:
        if not self.extension.handle(command):
            self.engine.apply(command)

    def turn(self) -> Frame:
        self._group.check()
        for command in self.extension.poll():
            self.engine.apply(command)
        frame = self.engine.step()
        self.extension.enrich(frame)
        return frame

    def _let_go(self) -> None:
        """The engine asks its extension about reads, and this asks the engine about blocks: neither
        would go, nor would the pool, before a collector of cycles came."""
        self.engine.ask_of_reads(lambda _: False)
        del self.engine, self.extension


def prefill_side(
    spec: EngineSpec,
    num_ranks: int,
    block_size: int,
    closers: ExitStack,
    *,
    shares_blocks: bool = False,
    clock: Clock = time.monotonic,
) -> Side:
    """It exports; ends with `closers`. `clock`: its engine's."""
    given = _spec(spec, Role.PREFILL, num_ranks, block_size, shares_blocks)
    return Side(given, make_exporter, "prefill_worker.rank_process", closers, clock)


def decode_side(
    spec: EngineSpec,
    num_ranks: int,
    block_size: int,
    closers: ExitStack,
    *,
    shares_blocks: bool = False,
    clock: Clock = time.monotonic,
) -> Side:
    """It reads; ends with `closers`. `clock`: its engine's."""
    given = _spec(spec, Role.DECODE, num_ranks, block_size, shares_blocks)
    return Side(given, make_intake, "decode_worker.rank_process", closers, clock)


def hand_over(
    source: Side, target: Side, prompt: list[int], num_tokens: int, *, cache_root: bytes = ROOT
) -> Handover:
    """Of one prompt, computed there and decoded here. Every read has to succeed."""
    return hand_over_request(source, target, request_of(prompt, num_tokens, cache_root))


def hand_over_request(source: Side, target: Side, body: GenerateRequest) -> Handover:
    """As `hand_over`."""
    assert source.extension.peer is not None
    target.tell(Connect(source.incarnation, source.extension.peer))  # again the same is nothing
    handover = Handover(source, target, body)
    limit_s = time.monotonic() + LIMIT_S
    while not handover.is_over:
        assert time.monotonic() < limit_s, "the handover does not end"
        handover.turn()
    assert {fetched.error for fetched in handover.fetched} == {""}
    assert sum(fetched.num_bytes for fetched in handover.fetched) > 0
    return handover


def hand_over_together(
    source: Side, target: Side, prompts: list[list[int]], num_tokens: int
) -> list[Handover]:
    """As `hand_over`, all at once. Nothing else may run on either side."""
    assert source.extension.peer is not None
    target.tell(Connect(source.incarnation, source.extension.peer))
    bodies = [
        structs.replace(request_of(prompt, num_tokens), request_id=f"r{at}")
        for at, prompt in enumerate(prompts)
    ]
    handovers = [Handover(source, target, body) for body in bodies]
    limit_s = time.monotonic() + LIMIT_S
    while not all(handover.is_over for handover in handovers):
        assert time.monotonic() < limit_s, "the handovers do not end"
        announced, heard = source.turn(), target.turn()
        for handover in handovers:
            handover.hear_target(heard)
            for command in handover.hear_source(announced):
                target.tell(command)
    assert {fetched.error for handover in handovers for fetched in handover.fetched} == {""}
    return handovers


class Handover:
    """One request on its way; `turn` until it is over. `fetched` is what the reads came to."""

    def __init__(self, source: Side, target: Side, body: GenerateRequest) -> None:
        self._source, self._target, self._body = source, target, body
        self.completion, self.fetched = Completion(), list[Fetched]()
        self._is_released = False
        self._ledger = BlockLedger(num_blocks=0, first_block=0)
        self.block_ids: list[int] = []
        """Where it goes."""
        self.source_ids: list[int] = []
        """Where it comes from."""
        self.scores: list[PromptToken] = []
        """Of the prompt's own tokens, by the source."""
        target.tell(Submit(structs.replace(body, mode=PrefillMode.REMOTE)))

    @property
    def is_over(self) -> bool:
        """Its last token is there, and the source has let go of its blocks."""
        return self._is_released and self._source.engine.is_idle

    def turn(self) -> None:
        for command in self.announced():
            self._target.tell(command)
        self.turn_target()

    def announced(self) -> list[Command]:
        """What the target is to be told after a turn of the source."""
        return self.hear_source(self._source.turn())

    def hear_source(self, frame: Frame) -> list[Command]:
        """What the target is to be told of this request."""
        name = self._body.request_id
        self.scores += [t for item in frame.scored if item.request_id == name for t in item.tokens]
        for prefilled in frame.prefilled:
            if prefilled.request_id == name:
                self.source_ids += prefilled.span.block_ids
                self._ledger.offer(prefilled.span)
        commands: list[Command] = [
            Fetch(name, self._source.incarnation, wanted.span, wanted.into)
            for wanted in self._ledger.take_reads()
        ]
        own = [event for event in frame.tokens if event.request_id == name]
        if own:
            commands.append(Seed(name, [ChoiceToken(event.choice, event.token) for event in own]))
        return commands

    def turn_target(self) -> None:
        """Alone, where the source is no more."""
        self.hear_target(self._target.turn())

    def hear_target(self, frame: Frame) -> None:
        """What has become of this request."""
        name = self._body.request_id
        for reserved in frame.reserved:
            if reserved.request_id == name:
                self._begin(reserved)
        for fetched in frame.fetched:
            if fetched.request_id == name:
                self.fetched.append(fetched)
                self._ledger.answer(fetched.first_index, fetched.num_blocks)
        collect(frame, defaultdict(Completion, {name: self.completion}))  # others have theirs
        if self.completion.ended is not None and not self._is_released:
            self._is_released = True
            self._source.tell(ReleaseExport(self._body.request_id))

    def _begin(self, reserved: Reserved) -> None:
        self.block_ids, num_blocks = reserved.block_ids, len(reserved.block_ids)
        sizes = BlockSizes(self._target.block_size, self._source.block_size)
        blocks = sizes.of_prompt(num_tokens=len(self._body.token_ids), num_blocks=num_blocks)
        self._ledger = BlockLedger(num_blocks=num_blocks, first_block=reserved.first_block)
        self._ledger.begin_source(blocks)
        export = structs.replace(
            self._body,
            mode=PrefillMode.EXPORT,
            first_block=blocks.first_for(self._ledger.first_unverified),
            digest_tokens=sizes.digest_tokens,
        )
        self._source.tell(Submit(export))


def _spec(
    spec: EngineSpec, role: Role, num_ranks: int, block_size: int, shares_blocks: bool
) -> EngineSpec:
    options = replace(
        spec.options,
        tensor_parallel_size=num_ranks,
        data_parallel_attention=shares_blocks,
        num_threads=num_ranks,
        block_size_tokens=block_size,
        prefix_cache=True,
    )
    return structs.replace(spec, role=role, incarnation=new_incarnation(), options=options)


def request_of(prompt: list[int], num_tokens: int, cache_root: bytes = ROOT) -> GenerateRequest:
    """Greedy; one at a time, so that all have one name."""
    return GenerateRequest(
        request_id="r",
        token_ids=prompt,
        sampling=SamplingParams(max_tokens=num_tokens, temperature=0.0, ignore_eos=True),
        cache_root=cache_root,
        timeout_ms=math.inf,
    )
