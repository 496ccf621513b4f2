"""From the wire's messages to our own records and back: one pair for each that several rooms share.

A record that one room alone makes or takes has its conversion beside it: members
(`cluster/membership/member.py`), a handoff's target (`decode_worker/handoff_plan.py`), decisions
(`router/control/decision_message.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from msgspec.structs import asdict

from cluster.beam_wire import beams_from_wire, beams_to_wire
from cluster.block_span import BlockSpan
from cluster.generation import (
    BegunChoice,
    EngineLoad,
    FinishReason,
    GeneratedToken,
    PromptToken,
    Timing,
    Usage,
)
from cluster.grammar_wire import grammar_from_wire, grammar_to_wire
from cluster.identity import WorkerKey
from cluster.kv_peer import KvPeer, KvRank
from cluster.pairing import Pairing
from cluster.sampling import SamplingParams
from cluster.worker_identity import WorkerIdentity
from protos import generation_pb2, handoff_pb2, worker_pb2

_TO_WIRE_REASON = {
    FinishReason.STOP: generation_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: generation_pb2.FINISH_REASON_LENGTH,
}
_FROM_WIRE_REASON = {wire: reason for reason, wire in _TO_WIRE_REASON.items()}
_OPTIONAL_SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "seed",
    "n",
    "prompt_logprobs",
)


def sampling_to_wire(params: SamplingParams) -> generation_pb2.SamplingParams:
    """Every field is set: the receiver needs no defaults."""
    return generation_pb2.SamplingParams(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=params.logit_bias,
        logprobs=params.logprobs,
        seed=params.seed,
        max_tokens=params.max_tokens,
        min_tokens=params.min_tokens,
        stop_token_ids=params.stop_token_ids,
        ignore_eos=params.ignore_eos,
        n=params.n,
        prompt_logprobs=params.prompt_logprobs,
        grammar=None if params.grammar is None else grammar_to_wire(params.grammar),
        beams=None if params.beams is None else beams_to_wire(params.beams),
    )


def sampling_from_wire(
    message: generation_pb2.SamplingParams,
    *,
    max_tokens: int | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> SamplingParams:
    """Absent fields take `defaults`, by name, else our own; `max_tokens` replaces an absent one.

    The result is not checked: call `check` where a client's values enter.
    """
    given = {name: getattr(message, name) for name in _OPTIONAL_SAMPLING if message.HasField(name)}
    limit = message.max_tokens if message.HasField("max_tokens") else max_tokens
    return SamplingParams(
        max_tokens=limit if limit is not None else 0,
        logit_bias=dict(message.logit_bias),
        min_tokens=message.min_tokens,
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        grammar=grammar_from_wire(message.grammar) if message.HasField("grammar") else None,
        beams=beams_from_wire(message.beams) if message.HasField("beams") else None,
        **{**(defaults or {}), **given},
    )


def token_to_wire(token: GeneratedToken) -> generation_pb2.GeneratedToken:
    """A generated token with its alternatives."""
    return generation_pb2.GeneratedToken(
        token_id=token.token_id,
        logprob=token.logprob,
        top=[generation_pb2.TokenLogprob(token_id=i, logprob=p) for i, p in token.top],
    )


def token_from_wire(message: generation_pb2.GeneratedToken) -> GeneratedToken:
    """The inverse of `token_to_wire`."""
    logprob = message.logprob if message.HasField("logprob") else None
    return GeneratedToken(message.token_id, logprob, _top_from_wire(message) if message.top else ())


def _top_from_wire(message: generation_pb2.GeneratedToken) -> tuple[tuple[int, float], ...]:
    return tuple([(item.token_id, item.logprob) for item in message.top])


def begun_to_wire(begun: BegunChoice) -> handoff_pb2.BegunChoice:
    """A choice that goes on elsewhere."""
    return handoff_pb2.BegunChoice(choice=begun.choice, token_ids=begun.token_ids)


def begun_from_wire(message: handoff_pb2.BegunChoice) -> BegunChoice:
    """The inverse of `begun_to_wire`."""
    return BegunChoice(message.choice, list(message.token_ids))


def prompt_token_to_wire(token: PromptToken) -> generation_pb2.PromptToken:
    """A scored token of the prompt with its alternatives."""
    return generation_pb2.PromptToken(
        token_id=token.token_id,
        logprob=token.logprob,
        rank=token.rank,
        top=[generation_pb2.TokenLogprob(token_id=i, logprob=p) for i, p in token.top],
    )


def prompt_token_from_wire(message: generation_pb2.PromptToken) -> PromptToken:
    """The inverse of `prompt_token_to_wire`."""
    return PromptToken(
        token_id=message.token_id,
        logprob=message.logprob,
        rank=message.rank,
        top=tuple((item.token_id, item.logprob) for item in message.top),
    )


def reason_to_wire(reason: FinishReason | None) -> generation_pb2.FinishReason:
    """None is UNSPECIFIED: the choice goes on."""
    if reason is None:
        return generation_pb2.FINISH_REASON_UNSPECIFIED
    return _TO_WIRE_REASON[reason]


def reason_from_wire(value: generation_pb2.FinishReason) -> FinishReason | None:
    """The inverse of `reason_to_wire`."""
    return _FROM_WIRE_REASON.get(value)


def usage_to_wire(usage: Usage) -> generation_pb2.Usage:
    """Counts of tokens."""
    return generation_pb2.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        accepted_prediction_tokens=usage.accepted_prediction_tokens,
        rejected_prediction_tokens=usage.rejected_prediction_tokens,
    )


def usage_from_wire(message: generation_pb2.Usage) -> Usage:
    """The inverse of `usage_to_wire`."""
    return Usage(
        prompt_tokens=message.prompt_tokens,
        completion_tokens=message.completion_tokens,
        cached_tokens=message.cached_tokens,
        accepted_prediction_tokens=message.accepted_prediction_tokens,
        rejected_prediction_tokens=message.rejected_prediction_tokens,
    )


def timing_to_wire(timing: Timing) -> generation_pb2.Timing:
    """The names are the same on both sides."""
    return generation_pb2.Timing(**asdict(timing))


def timing_from_wire(message: generation_pb2.Timing) -> Timing:
    """The inverse of `timing_to_wire`."""
    values = dict(zip(_TIMING_NAMES, _timing_values(message), strict=True))
    for name in _BY_POSITION:
        values[name] = tuple(values[name])
    return Timing(**values)


_BY_POSITION = ("draft_tokens_by_position", "accepted_draft_tokens_by_position")
_TIMING_NAMES = Timing.__struct_fields__
_timing_values = attrgetter(*_TIMING_NAMES)
_LOAD_NAMES = tuple(name for name in EngineLoad.__struct_fields__ if name != "home_blocks_left")
_load_values = attrgetter(*_LOAD_NAMES)


def load_to_wire(load: EngineLoad) -> worker_pb2.EngineLoad:
    """The names are the same on both sides."""
    return worker_pb2.EngineLoad(**asdict(load))


def load_from_wire(message: worker_pb2.EngineLoad) -> EngineLoad:
    """The inverse of `load_to_wire`."""
    numbers = dict(zip(_LOAD_NAMES, _load_values(message), strict=True))
    return EngineLoad(**numbers, home_blocks_left=tuple(message.home_blocks_left))


def pairing_to_wire(pairing: Pairing) -> handoff_pb2.Pairing:
    """The names are the same on both sides."""
    return handoff_pb2.Pairing(**{f.name: getattr(pairing, f.name) for f in fields(Pairing)})


def pairing_from_wire(message: handoff_pb2.Pairing) -> Pairing:
    """The inverse of `pairing_to_wire`."""
    return Pairing(**{f.name: getattr(message, f.name) for f in fields(Pairing)})


def peer_to_wire(peer: KvPeer) -> handoff_pb2.KvPeer:
    """The names are the same on both sides."""
    return handoff_pb2.KvPeer(
        transport=peer.transport,
        shares_blocks=peer.shares_blocks,
        blocks_each=peer.blocks_each,
        block_size_tokens=peer.block_size_tokens,
        generations_address=peer.generations_address,
        host=peer.host,
        ranks=[
            handoff_pb2.KvRank(**{f.name: getattr(rank, f.name) for f in fields(KvRank)})
            for rank in peer.ranks
        ],
    )


def peer_from_wire(message: handoff_pb2.KvPeer) -> KvPeer:
    """The inverse of `peer_to_wire`."""
    return KvPeer(
        transport=message.transport,
        shares_blocks=message.shares_blocks,
        blocks_each=message.blocks_each,
        block_size_tokens=message.block_size_tokens,
        generations_address=message.generations_address,
        host=message.host,
        ranks=tuple(
            KvRank(**{f.name: getattr(rank, f.name) for f in fields(KvRank)})
            for rank in message.ranks
        ),
    )


def span_to_wire(span: BlockSpan) -> handoff_pb2.BlocksReady:
    """An announcement."""
    return handoff_pb2.BlocksReady(
        first_index=span.first_index,
        block_ids=span.block_ids,
        generations=span.generations,
        digests=span.digests,
    )


def span_from_wire(message: handoff_pb2.BlocksReady) -> BlockSpan:
    """The inverse of `span_to_wire`. Not checked: ask for its `problem`."""
    return BlockSpan(
        message.first_index, list(message.block_ids), list(message.generations), message.digests
    )


def identity_to_wire(identity: WorkerIdentity) -> worker_pb2.WorkerIdentity:
    """The first word of either side of a session."""
    return worker_pb2.WorkerIdentity(
        worker_id=identity.key.worker_id,
        incarnation=identity.key.incarnation,
        pairing=pairing_to_wire(identity.pairing),
    )


def identity_from_wire(message: worker_pb2.WorkerIdentity) -> WorkerIdentity:
    """The inverse of `identity_to_wire`."""
    key = WorkerKey(message.worker_id, message.incarnation)
    return WorkerIdentity(key, pairing_from_wire(message.pairing))
