"""Where a request runs: the cheapest of "P prefills, D decodes" and "D does both", in milliseconds.

    pair (P, D)  = P's queue + P's prefill + visible part of the transfer + handoff
    D alone      = D's queue + D's prefill + interference
    both         + decode slowdown + waiting for memory, at D and at P

Interference is why two pools exist. A local prefill lengthens the steps of every sequence that
decodes on D, so each of them loses what our uncached tokens take. They are counted between
MIN_STALLED and MAX_STALLED: at least one, because the count is as old as the last report and the
next sequences arrive while the prefill runs (so on an idle machine a prompt with uncached blocks
goes to the prefill pool, which is what the operator started it for); at most eight, because
beyond that a queue of seconds at P would be preferred to any local work. Only tokens interfere,
not the fixed cost of a forward pass: the decode step pays that anyway. From this it falls out
that a prompt which D has cached almost whole stays on D: a handoff costs more than its few tokens.

Estimates are not better than MARGIN. Within it the pair is taken, which keeps D's batch even; but
only when D lacks a whole block, since for less there is nothing to take off D.

Engines compute prompts in the order they are due (engine/step/planning/urgency.py), so that a short
prompt does not wait for longer ones: of those it waits for half a step.

Prices that differ by a few percent (an index that knows nothing, an idle fleet) go to the fewest
tokens in flight, then to the one that is drawn: several routers do not all take the same. The draw
is part of the view, so the function is pure; `explain` shows every term.
"""

from __future__ import annotations

from router.pricing.route import Candidate, Cost, Route, RouteReason, RoutingView, WorkerView

MIN_STALLED = 1
MAX_STALLED = 8
MARGIN = 0.10
EQUAL_SHARE = 0.03
EQUAL_MS = 0.5
"""Prices that differ by no more than the larger of the two are one price."""
NUM_PROPOSED_PREFILLS = 3
"""How many prefill workers the decode worker may try, one after the other."""
DECODE_SHARE = 0.04
"""Where no worker has measured it, one more sequence makes a step longer by this part of a step of
none. From the 2-core CPU, 135M parameters: 22 ms with 1 sequence, 36 ms with 16."""
CHUNK_TOKENS = 512
"""What an engine computes in a step, and announces to its reader, by default."""
DECODE_HORIZON_TOKENS = 32
"""How many tokens of slowdown count: the first ones, which a reader waits for."""
MEMORY_WAIT_STEPS = 64
"""When the pool is full: decode steps until some sequence is expected to end."""


def choose_route(view: RoutingView) -> Route:
    """The route of one request. The view has at least one decode worker."""
    ranked = _ranked_prefill(view)
    alone = [_local(view, worker) for worker in view.decode]
    pairs = [
        _pair(view, partners[0], worker)
        for worker in view.decode
        if (partners := ranked.get(worker.pairing_key))
    ]
    local = _cheapest(alone, view.turn)
    if not pairs:
        reason = RouteReason.NOT_PAIRED if view.prefill else RouteReason.NO_PREFILL_WORKER
        return Route(local.decode, (), reason, local, tuple(alone))
    pair = _cheapest(pairs, view.turn)
    reason = _compare(view, pair, local)
    if reason is RouteReason.LOCAL_CHEAPER:
        return Route(local.decode, (), reason, local, (*alone, *pairs))
    decode = next(worker for worker in view.decode if worker.key == pair.decode)
    partners = ranked[decode.pairing_key][:NUM_PROPOSED_PREFILLS]
    others = tuple(_pair(view, partner, decode) for partner in partners[1:])
    targets = tuple(partner.key for partner in partners)
    return Route(decode.key, targets, reason, pair, (*alone, *pairs, *others))


def _compare(view: RoutingView, pair: Candidate, local: Candidate) -> RouteReason:
    if pair.cost.total_ms < local.cost.total_ms:
        return RouteReason.PAIR_CHEAPER
    decode = next(worker for worker in view.decode if worker.key == local.decode)
    lacks_a_block = _uncached(view, decode) >= view.block_size_tokens
    if lacks_a_block and not view.allows_local_prefill:
        return RouteReason.LOCAL_OFF
    if lacks_a_block and pair.cost.total_ms <= local.cost.total_ms * (1 + MARGIN):
        return RouteReason.PAIR_WITHIN_MARGIN
    return RouteReason.LOCAL_CHEAPER


def _uncached(view: RoutingView, worker: WorkerView) -> int:
    """Tokens to compute; the last one always, since its logits are wanted."""
    return max(1, view.prompt_tokens - worker.trusted_tokens)


def _queue_ms(view: RoutingView, worker: WorkerView) -> float:
    """All that waits, where prompts are as short as ours; else half of the step under way."""
    ahead = worker.waiting_tokens
    if ahead > worker.waiting_prompts * _uncached(view, worker):
        ahead = min(ahead, CHUNK_TOKENS // 2)
    return ahead * worker.speed.ms_per_token


def _prefill_ms(view: RoutingView, worker: WorkerView) -> float:
    return worker.speed.of(_uncached(view, worker), worker.trusted_tokens)


def _local(view: RoutingView, worker: WorkerView) -> Candidate:
    stalled = min(MAX_STALLED, max(MIN_STALLED, worker.num_running))
    cost = Cost(
        queue_ms=_queue_ms(view, worker),
        prefill_ms=_prefill_ms(view, worker),
        interference_ms=stalled * _uncached(view, worker) * worker.speed.ms_per_token,
        decode_ms=_decode_ms(view, worker),
        memory_ms=_memory_ms(view, worker),
    )
    return Candidate(worker.key, None, cost, worker.in_flight_tokens)


def _pair(view: RoutingView, prefill: WorkerView, decode: WorkerView) -> Candidate:
    cost = Cost(
        queue_ms=_queue_ms(view, prefill),
        prefill_ms=_prefill_ms(view, prefill),
        transfer_ms=_transfer_ms(view, prefill, decode),
        handoff_ms=view.handoff_ms,
        decode_ms=_decode_ms(view, decode),
        memory_ms=_memory_ms(view, decode) + _prompt_memory_ms(view, prefill),
    )
    load_tokens = prefill.in_flight_tokens + decode.in_flight_tokens
    return Candidate(decode.key, prefill.key, cost, load_tokens)


def _transfer_ms(view: RoutingView, prefill: WorkerView, decode: WorkerView) -> float:
    """Blocks are read chunk by chunk while P computes: what is left when P is done."""
    lacking = max(0, view.prompt_tokens - decode.trusted_tokens)
    rate = view.links.get((prefill.key, decode.key), decode.kv_bytes_per_s)
    whole_ms = 1000 * lacking * decode.kv_bytes_per_token / rate
    last = 1 / max(1, _uncached(view, prefill) // CHUNK_TOKENS)
    return max(whole_ms * last, whole_ms - _prefill_ms(view, prefill) * (1 - last))


def _decode_ms(view: RoutingView, worker: WorkerView) -> float:
    """What those that run add to each of our first steps."""
    row_ms = worker.decode_row_ms
    if row_ms is None:
        row_ms = DECODE_SHARE * worker.decode_step_ms / (1 + DECODE_SHARE * worker.num_running)
    return worker.num_running * row_ms * min(view.expected_tokens, DECODE_HORIZON_TOKENS)


def _memory_ms(view: RoutingView, worker: WorkerView) -> float:
    """D has to hold the prompt, and all choices as long as they will probably get."""
    completion = view.num_choices * min(view.expected_tokens, view.max_tokens)
    needed = view.prompt_tokens + completion - worker.trusted_tokens
    full = worker.free_tokens is not None and needed > worker.free_tokens
    return MEMORY_WAIT_STEPS * worker.decode_step_ms if full else 0.0


def _prompt_memory_ms(view: RoutingView, worker: WorkerView) -> float:
    """P has to hold the prompt; blocks come free as the prompts before it are computed and read."""
    if worker.free_tokens is None:
        return 0.0
    missing = view.prompt_tokens - worker.trusted_tokens - worker.free_tokens
    return max(0, missing) * worker.speed.ms_per_token


def _ranked_prefill(view: RoutingView) -> dict[str, list[WorkerView]]:
    """Prefill workers by pairing, cheapest first."""
    total = len(view.prefill)

    def rank(item: tuple[int, WorkerView]) -> tuple[int, int, int]:
        index, worker = item
        price_ms = _queue_ms(view, worker) + _prefill_ms(view, worker)
        price_ms += _prompt_memory_ms(view, worker)
        return _bucket(price_ms), worker.in_flight_tokens, _turns(index, view.turn, total)

    ranked: dict[str, list[WorkerView]] = {}
    for _, worker in sorted(enumerate(view.prefill), key=rank):
        ranked.setdefault(worker.pairing_key, []).append(worker)
    return ranked


def _bucket(price_ms: float) -> int:
    """Prices that are one price, roughly: whole steps of EQUAL_MS."""
    return round(price_ms / EQUAL_MS)


def _turns(index: int, turn: int, total: int) -> int:
    return (index - turn) % total


def _cheapest(candidates: list[Candidate], turn: int) -> Candidate:
    if len(candidates) == 1:
        return candidates[0]
    prices_ms = [candidate.cost.total_ms for candidate in candidates]
    best_ms = min(prices_ms)
    limit_ms = best_ms + max(EQUAL_MS, EQUAL_SHARE * best_ms)
    equal = [item for item, ms in zip(candidates, prices_ms, strict=True) if ms <= limit_ms]
    lightest = min(item.load_tokens for item in equal)
    finalists = [item for item in equal if item.load_tokens == lightest]
    return finalists[turn % len(finalists)]
