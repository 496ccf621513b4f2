"""The records that a worker makes of its options, its model and its engine while it starts."""

from __future__ import annotations

from msgspec import structs

from cluster import VERSION
from cluster.config import WorkerOptions
from cluster.errors import ConfigError
from cluster.identity import Role, WorkerKey
from cluster.kv_events.keys import ReaderKeys
from cluster.membership.member import Member
from cluster.models.cache.find_card import find_card
from cluster.models.card import ModelCard
from cluster.models.heads.card import HeadsCard
from cluster.models.pooling import Pooling
from cluster.models.text.pooling import pooling_of_model
from cluster.pairing import Pairing
from cluster.process.startup import report_progress
from cluster.process.thread_call import in_thread
from cluster.sampling import DRAWS_VERSION
from engine.contract.head_in_blocks import head_in_blocks
from engine.contract.messages import LoadProgress, Ready
from engine.contract.spec import (
    DraftSpec,
    EngineSpec,
    HeadsSpec,
    resolve_dtype,
    resolve_weights,
)


async def find_model(options: WorkerOptions) -> ModelCard:
    """The model's card, fetched when it is not here. A cancelled fetch is left behind."""
    return await in_thread("model-fetch", lambda: find_card(options.model))


def report_load(progress: LoadProgress) -> None:
    """What the engine is at, to the supervisor."""
    report_progress(progress.phase, progress.fraction)


def spec_of(
    options: WorkerOptions,
    card: ModelCard,
    key: WorkerKey,
    drafter: ModelCard | HeadsCard | None = None,
) -> EngineSpec:
    """What the engine's process is told; "auto" is resolved here. `drafter`: of a model that
    guesses, in the precision that was asked for, or of a head, in the model's."""
    dtype = resolve_dtype(card, options.model.dtype)
    spec = EngineSpec(
        card=card,
        dtype=dtype,
        weights=resolve_weights(card, options.model.weights, dtype, options.engine.device),
        kv=options.model.kv,
        role=options.role,
        worker_id=key.worker_id,
        incarnation=key.incarnation,
        kv_transport=options.peers.kv_transport,
        options=options.engine,
        pooling=_pooling_of(options, card),
        drafter=_drafter_spec(options, card, drafter),
    )
    if spec.heads is not None and options.role is Role.PREFILL and head_in_blocks(spec) is None:
        return structs.replace(spec, drafter=None)  # nobody would read what it makes
    return spec


def _drafter_spec(
    options: WorkerOptions, card: ModelCard, drafter: ModelCard | HeadsCard | None
) -> DraftSpec | HeadsSpec | None:
    if isinstance(drafter, ModelCard):
        return _draft_spec(options, drafter)
    if isinstance(drafter, HeadsCard):
        return HeadsSpec(card=drafter)
    has_own = card.config.num_prediction_layers > 0
    wish = options.engine.speculation_wish
    if not wish.asks_for_own_layer(has_own=has_own):
        return None
    return HeadsSpec(card=None, is_optional=not wish.is_by_name)


def _draft_spec(options: WorkerOptions, card: ModelCard) -> DraftSpec:
    dtype = resolve_dtype(card, options.model.dtype)
    return DraftSpec(
        card=card,
        dtype=dtype,
        weights=resolve_weights(card, options.model.weights, dtype, options.engine.device),
    )


def _pooling_of(options: WorkerOptions, card: ModelCard) -> Pooling | None:
    """Of a prefill worker: no other computes prompts for themselves. Raises ConfigError for a model
    that makes no text, at a decode worker."""
    pooling = pooling_of_model(card, options.model)
    if options.role is Role.PREFILL or pooling is None:
        return pooling
    if not pooling.generates:
        raise ConfigError(
            f"{card.name} makes no text: a fleet of it has prefill workers alone (serve --decode 0)"
        )
    return None


def pairing_of(spec: EngineSpec, ready: Ready) -> Pairing:
    """The facts that a replica's KV blocks depend on, with the weights as they were loaded."""
    kept, head = spec.card.config.kv_shape, head_in_blocks(spec)
    return Pairing(
        weights_digest=spec.card.weights_digest,
        tokenizer_digest=spec.card.tokenizer_digest,
        dtype=spec.dtype,
        weights=ready.loaded.weights.value,
        kv_dtype=spec.kv,
        num_planes=kept.num_planes,
        block_size_tokens=spec.options.block_size_tokens,
        num_layers=kept.num_layers + (0 if head is None else head.num_layers),
        num_kv_heads=kept.num_kv_heads,
        head_dim=kept.head_dim,
        head="" if head is None else head.identity,
    )


def member_of(
    spec: EngineSpec,
    ready: Ready,
    *,
    address: str,
    events: tuple[str, str],
    event_keys: ReaderKeys,
    model: str,
    pid: int,
    pool: str = "",
) -> Member:
    """What the fleet is told; `events` are the addresses of KV events and of their replay,
    for whoever has `event_keys`."""
    return Member(
        worker_id=spec.worker_id,
        incarnation=spec.incarnation,
        role=spec.role,
        address=address,
        pairing=pairing_of(spec, ready),
        model=model,
        max_context_tokens=ready.max_context_tokens,
        kv_events_address=events[0],
        kv_replay_address=events[1],
        kv_events_key=event_keys.worker,
        kv_reader_secret=event_keys.secret,
        kv_transport=ready.kv_transport,
        version=VERSION,
        pid=pid,
        prefix_cache_off=not spec.options.prefix_cache,
        max_num_seqs=spec.options.num_seats,
        ranks=tuple(ready.ranks),
        pooling="" if spec.pooling is None else spec.pooling.kind.value,
        pool=pool,
        draws=DRAWS_VERSION,
    )


def facts_of(spec: EngineSpec, ready: Ready, *, metrics_port: int) -> dict[str, str]:
    """For the ready line: what "auto" became, and where the start's time went."""
    phases = " ".join(f"{name}={ms:.0f}ms" for name, ms in ready.load_phases_ms.items())
    return {
        "worker_id": spec.worker_id,
        "role": spec.role.value,
        "model": spec.card.name,
        "dtype": spec.dtype,
        "weights": ready.loaded.weights.value,
        "kernels": ready.loaded.kernels,
        "kv": spec.dtype if spec.kv == "auto" else spec.kv,
        "blocks": str(ready.total_blocks),
        "max_context_tokens": str(ready.max_context_tokens),
        "kv_transport": ready.kv_transport or "none yet",
        "speculation": _speculation(spec),
        "metrics_port": str(metrics_port),
        "engine_pid": str(ready.pid),
        "load": phases,
    }


def _speculation(spec: EngineSpec) -> str:
    if spec.heads is not None:
        return _head_in_words(spec, spec.heads.card)
    if spec.role is Role.PREFILL:
        return "none: it gives no answers"
    if spec.draft is None:
        return spec.options.speculation
    return f"{spec.draft.card.name} ({spec.draft.weights.value}, {spec.draft.dtype})"


def _head_in_words(spec: EngineSpec, head: HeadsCard | None) -> str:
    if spec.heads is not None and spec.heads.is_optional:
        return "auto, with the model's own layer where it can be had"
    is_handed_over = head_in_blocks(spec) is not None
    where = "handed over with its blocks" if is_handed_over else "not handed over"
    if head is None:
        return f"the model's own layer ({spec.weights.value}, {spec.dtype}, {where})"
    return f"{head.name} (head {head.weights_digest[:12]}, {spec.dtype}, {where})"
