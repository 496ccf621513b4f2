"""Every request that is not over, by arrival; and how a request ends.

The states of the sequences are the queues: "waiting" are the QUEUED ones, "running" those that
prefill or decode. Blocks of a request that ends while reads into them, or a step that computes it,
are in flight linger until those are done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from cluster.deadline import Clock, Deadline
from cluster.generation import BegunChoice
from engine.contract.commands import GenerateRequest
from engine.memory.block_pool import Hold
from engine.memory.lease import BlockLease
from engine.sampling.grammars.compiled_grammar import CompiledGrammar
from engine.step.requests.adapter_use import AdapterUse
from engine.step.requests.beam_search import BeamSearchState
from engine.step.requests.lifecycle import FINAL, Life, SequenceState
from engine.step.requests.request import Request
from engine.step.requests.sequence import Sequence

_RUNNING = (SequenceState.PREFILLING, SequenceState.DECODING)
_UNCOMPUTED = (SequenceState.QUEUED, SequenceState.PREFILLING)
_NEW = BegunChoice(0, [])
"""The leader of a new request, as if it went on."""

HasReads = Callable[[str], bool]
"""Request id -> True while reads into its blocks are in flight (engine/process/extension.py)."""


def no_reads(request_id: str) -> bool:
    """A HasReads for an engine that receives nothing."""
    return False


class RequestTable:
    """Owns requests from Submit until RequestEnded. Iterates oldest first."""

    def __init__(self, clock: Clock, has_reads: HasReads) -> None:
        self._clock = clock
        self._has_reads = has_reads
        self._requests: dict[str, Request] = {}
        self._lingering: list[BlockLease] = []
        self._num_arrived = 0
        self.num_constrained = 0
        """Requests with a grammar."""
        self.num_searches = 0
        """Requests with beams."""
        self.counts: Counter[SequenceState] = Counter()
        self.computing: frozenset[BlockLease] = frozenset()
        """Leases whose blocks steps in flight write to: kept up by who launches and lands these."""

    def __iter__(self) -> Iterator[Request]:
        return iter(list(self._requests.values()))

    def __len__(self) -> int:
        return len(self._requests)

    def get(self, request_id: str) -> Request | None:
        """None for an id that is unknown or over."""
        return self._requests.get(request_id)

    def of(self, sequences: Iterable[Sequence]) -> list[Request]:
        """Their requests that are not over, each once."""
        ids = dict.fromkeys([sequence.request_id for sequence in sequences])
        return [request for i in ids if (request := self.get(i)) is not None]

    def searches_among(self, sequences: Iterable[Sequence]) -> tuple[list[int], list[int]]:
        """Which of them are beams of searches, and which are not, by index. Not asked while
        `num_searches` is 0."""
        own, others = list[int](), list[int]()
        for index, sequence in enumerate(sequences):
            request = self.get(sequence.request_id)
            searches = request is not None and request.params.beams is not None
            (own if searches else others).append(index)
        return own, others

    def add(self, body: GenerateRequest) -> Request:
        """A new request, queued behind all others."""
        self._num_arrived += 1
        sequences = [self._queued(body, begun) for begun in body.resume or [_NEW]]
        if body.sampling.prompt_logprobs is not None:
            sequences[0].num_scored = 0
        deadline = Deadline.after(body.timeout_ms / 1e3, self._clock)
        request = Request(body, sequences, deadline=deadline)
        self._requests[body.request_id] = request
        self.num_searches += body.sampling.beams is not None
        return request

    def constrain(self, request: Request, grammar: CompiledGrammar) -> None:
        """A request that has just been added: it waits until the grammar is ready."""
        request.grammar, request.waits_on_others = grammar, True
        self.num_constrained += 1

    def adapt(self, request: Request, use: AdapterUse) -> None:
        """A request that has just been added: it waits until it has the adapter."""
        request.adapter, request.waits_on_others = use, True
        for sequence in request.sequences:
            sequence.adapter = use

    def waiting(self) -> Iterator[tuple[Request, Sequence]]:
        """Queued sequences that may be admitted, oldest request first."""
        queued = self._in_states((SequenceState.QUEUED,))
        return ((r, s) for r, s in queued if (not r.is_resumed or r.lets_in(s)) and r.may_start)

    def running(self) -> Iterator[tuple[Request, Sequence]]:
        """Sequences that may compute, oldest request first."""
        return self._in_states(_RUNNING)

    def seats_taken(self, num_homes: int) -> list[int]:
        """Sequences that decode, or will when their prompt is there, at each home."""
        seated = self._in_states((*_RUNNING, SequenceState.RECEIVING))
        if num_homes == 1:
            return [sum(request.num_seats for request, _ in seated)]
        seats = [0] * num_homes
        for request, sequence in seated:
            if sequence.lease is not None:
                seats[sequence.lease.home] += request.num_seats
        return seats

    def uncomputed(self) -> Iterator[tuple[Request, Sequence]]:
        """Sequences whose prompt this engine has still to compute, oldest request first."""
        waiting = self._in_states(_UNCOMPUTED)
        return ((request, sequence) for request, sequence in waiting if not request.is_remote)

    def num_waiting_tokens(self) -> int:
        """Tokens that this engine has still to compute before it can decode."""
        return sum(sequence.num_remaining for _, sequence in self.uncomputed())

    def num_waiting_prompts(self) -> int:
        """Sequences that these are of."""
        return sum(1 for _ in self.uncomputed())

    def finish_sequence(self, request: Request, sequence: Sequence) -> None:
        """One choice of several is complete."""
        self._let_go(sequence)
        sequence.life.advance(SequenceState.FINISHED)
        request.sequences.remove(sequence)

    def start_over(self, request: Request) -> None:
        """A beam search, none of whose blocks a step in flight writes to, is queued again."""
        for sequence in request.sequences[1:]:
            self.finish_sequence(request, sequence)
        request.start_over()
        request.leader.life.advance(SequenceState.QUEUED)

    def end(self, request: Request, state: SequenceState) -> None:
        """Ends every sequence, frees the blocks, forgets the request."""
        assert state in FINAL, f"a request cannot end as {state.value}"
        for sequence in request.sequences:
            self._let_go(sequence)
            sequence.life.advance(state)
        request.sequences = []
        request.is_over = True
        if request.grammar is not None:
            self.num_constrained -= 1
            request.grammar.leave()
        if request.adapter is not None:
            request.adapter.leave()
        self.num_searches -= request.params.beams is not None
        del self._requests[request.request_id]

    def ask_of_reads(self, has_reads: HasReads) -> None:
        """From now on."""
        self._has_reads = has_reads

    def has_reads(self, request: Request) -> bool:
        """True while reads into the request's blocks are in flight."""
        return self._has_reads(request.request_id)

    def sweep(self) -> None:
        """Frees lingering blocks that nothing in flight writes to. Once per step."""
        if self._lingering:
            done = [lease for lease in self._lingering if not self._is_written(lease)]
            self._lingering = [lease for lease in self._lingering if lease not in done]
            for lease in done:
                lease.release()

    def leases(self) -> set[BlockLease]:
        """Every lease that somebody here answers for."""
        held = {s.lease for request in self for s in request.sequences if s.lease is not None}
        return held | set(self._lingering)

    def check_invariants(self) -> list[str]:
        """Broken promises, in words; empty is good."""
        states = Counter(s.life.state for request in self for s in request.sequences)
        alive = {state: count for state, count in self.counts.items() if state not in FINAL}
        found = [f"request {r.request_id} has no sequence" for r in self if not r.sequences]
        if +Counter(alive) != states:
            found.append(f"counted sequences {alive} differ from those in the table {states}")
        for request in self:
            found += [
                f"sequence {s.request_id}/{s.choice} is {s.life.state.value} "
                f"{'with' if s.lease else 'without'} blocks"
                for s in request.sequences
                if (s.life.state is SequenceState.QUEUED) is not (s.lease is None)
            ]
            if request.search is not None:
                found += _faults_of_beams(request, request.search)
        return found

    def _queued(self, body: GenerateRequest, begun: BegunChoice) -> Sequence:
        sequence = Sequence(
            body.request_id,
            body.token_ids,
            cache_root=body.cache_root,
            arrival=self._num_arrived,
            life=Life(self._clock, self.counts),
            adapter_digest=body.adapter,
        )
        sequence.choice = begun.choice
        sequence.token_ids += begun.token_ids
        return sequence

    def _let_go(self, sequence: Sequence) -> None:
        if sequence.lease is not None and self._is_written(sequence.lease):
            self._lingering.append(sequence.lease)
            sequence.lease = None
        sequence.release()

    def _is_written(self, lease: BlockLease) -> bool:
        receives = lease.hold is Hold.RECEIVING and self._has_reads(lease.owner)
        return receives or lease in self.computing

    def _in_states(self, states: tuple[SequenceState, ...]) -> Iterator[tuple[Request, Sequence]]:
        for request in self:
            for sequence in request.sequences:
                if sequence.life.state in states:
                    yield request, sequence


def _faults_of_beams(request: Request, search: BeamSearchState) -> list[str]:
    """Broken promises of a search under way, in words."""
    sequences, found = request.sequences, list[str]()
    if len(sequences) != len(search.beams) or not set(request.kept_candidates) < set(sequences):
        found.append(f"request {request.request_id} has other sequences than beams")
    if len({s.choice for s in sequences}) != len(sequences):
        found.append(f"beams of request {request.request_id} have one number")
    for beam, sequence in zip(search.beams, sequences, strict=False):
        told = [token.token_id for token in beam.last.all()]
        if sequence.token_ids[sequence.num_prompt :] != told:
            found.append(f"beam {sequence.choice} of {request.request_id} has other tokens")
    return found
