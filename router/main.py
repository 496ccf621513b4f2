"""The entry point of a router process: load the model's text side, put everything together, run."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace

import uvloop

from cluster.config import RouterOptions
from cluster.identity import Role
from cluster.logs import configure_logging
from cluster.models.cache.find_card import find_text_card
from cluster.models.card import ModelCard
from cluster.process.background import until_one_ends
from cluster.process.end_limit import EndLimit
from cluster.process.loop_share import LoopShare
from cluster.process.signals import StopRequests, listen_for_signals
from cluster.process.startup import report_progress
from cluster.process.stopping import exit_code_of
from cluster.process.thread_call import exit_past_calls, in_thread
from cluster.world import World
from router.control.join_rules import OwnModel
from router.control.plane import FleetPlane
from router.fleet.fleet_adapters import FleetAdapters
from router.front.model_loading import load_served_model
from router.front.readiness import ContextLimit
from router.front.served_model import ServedModel
from router.page.listener import PageListener
from router.router_process import RouterProcess
from router.sharing.circle import CirclePlace, own_name
from router.store.names import StoreNames
from router.store.opened import open_store
from router.store.shared_store import SharedStore
from router.telemetry.metrics import TextMetrics
from router.text_worker.limits import TextLimits
from router.text_worker.messages import Setup
from router.text_worker.workers import TextWorkers
from router.vllm.introduction import FrontedModel

YOUNG_OBJECTS = 2_000
"""That are made before the collector looks at them. Requests leave hardly any cycles behind, so
that looks find nothing, and one look holds the loop: at 10,000 objects, which do not fit a core's
cache, for up to 8.7 ms, at these for up to 0.9; all looks together took 33 and 24 us a request
(three runs of 3,000 requests each, `python -m benchmarks.bench_router --requests 1500`, whose p99
went from 1.1 to 2.4 ms to 1.3 to 1.7, a short chat's from 2.8 to 4.0 to 1.4 to 1.8)."""
YOUNG_LOOKS = 5
"""At what is new, until one at all that these have left: 12,000 objects, 1.2 to 2.3 ms."""
SHUTDOWN_TIMEOUT_S = 20.0
"""For all that is closed together: connections, servers, text workers."""


def run(options: RouterOptions) -> int:
    """Serves until a signal; the process's exit code.

    Raises a SplitserveError when it cannot start: the model cannot be had, or a port is taken.
    """
    configure_logging("router")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return exit_past_calls(runner.run(_run(options)))


async def _run(options: RouterOptions) -> int:
    stop_requests = StopRequests(EndLimit(SHUTDOWN_TIMEOUT_S).begin)
    with listen_for_signals(stop_requests):
        card = await found_unless_stopped(options, stop_requests)
        if card is None:
            return exit_code_of(stop_requests)
        return await _serve(options, card, stop_requests)


async def _serve(options: RouterOptions, card: ModelCard, stop_requests: StopRequests) -> int:
    world, share = World(), LoopShare()
    store = _store_of(options, card, world)
    circle = None if store is None else CirclePlace(own_name(options.workers_port), store)
    limit = ContextLimit(
        card.config.max_context_tokens, lambda: longest_request_tokens(workers), world.clock
    )
    model = await asyncio.to_thread(load_served_model, card, options, limit)
    fronted = _fronted(card, model) if options.vllm_servers.vllm is not None else None
    workers = FleetPlane(
        options,
        _own_model(card, model),
        world,
        on_loss=stop_requests.on_loss,
        circle=circle,
        fronted=fronted,
        share=share,
    )
    model = _adapted(model, workers.adapters)
    if store is not None:
        store.watch(workers.fleet.diary.store_is)
    report_progress("listen")
    _spare_the_collector()
    limits = TextLimits.for_bodies_of(options.max_body_bytes)
    setup = Setup(
        card,
        model.name,
        limits,
        options.ignores_unknown_fields,
        options.tool_format,
        options.reasoning_format,
        model.pooling,
    )
    texts = TextWorkers(setup, TextMetrics(workers.registry), clock=world.clock, sleep=world.sleep)
    router = RouterProcess(
        *(options, model, workers, texts, stop_requests, world),
        store=store,
        num_routers=lambda: num_routers(workers),
        share=share,
        page=PageListener.of(options, workers, model.name, world, share),
        passing=workers.passing,
        adapter_orders=workers.adapter_orders,
    )
    return await router.run()


async def found_unless_stopped(
    options: RouterOptions, stop_requests: StopRequests
) -> ModelCard | None:
    """The model's text side, fetched when it is not here; None: a signal came first, and the fetch
    is left behind. Raises a ModelError."""
    found = list[ModelCard]()

    async def find() -> None:
        found.append(await in_thread("model-fetch", lambda: find_text_card(options.model)))

    await until_one_ends(find(), stop_requests.drain.wait())
    return found[0] if found else None


def _store_of(options: RouterOptions, card: ModelCard, world: World) -> SharedStore | None:
    """Raises ConfigError for an address that is none."""
    url = options.store.store
    if url is None:
        return None
    names = StoreNames(options.store.store_namespace, options.model.name_of(card.name))
    return open_store(url, names, world, options.store.store_timeout_s)


def _spare_the_collector() -> None:
    """What is loaded stays: it need not be looked at again. What comes is looked at less often."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS)


def num_routers(workers: FleetPlane) -> int:
    """That serve the fleet, with this one."""
    return 1 if workers.circle is None else workers.circle.num_alive


def _own_model(card: ModelCard, model: ServedModel) -> OwnModel:
    return OwnModel(
        name=model.name,
        tokenizer_digest=card.tokenizer_digest,
        weights_digest=card.weights_digest,
        pooling="" if model.pooling is None else model.pooling.kind.value,
    )


def _adapted(model: ServedModel, adapters: FleetAdapters) -> ServedModel:
    """With what the fleet's workers have beside it."""
    return replace(
        model,
        find_adapter=adapters.find,
        find_pooling_adapter=adapters.find_pooling,
        all_adapters=adapters.all,
        unread_adapters=adapters.unread,
    )


def _fronted(card: ModelCard, model: ServedModel) -> FrontedModel:
    return FrontedModel(
        name=model.name,
        weights_digest=card.weights_digest,
        tokenizer_digest=card.tokenizer_digest,
        kv_shape=card.config.kv_shape,
        encode=model.tokenizer.encode,
    )


def longest_request_tokens(workers: FleetPlane) -> int | None:
    """Prompt and completion that the roomiest decode worker can hold, or prompt that a prefill
    worker can that pools; None without either."""
    fleet = workers.fleet
    members = fleet.ready(Role.DECODE) or fleet.with_role(Role.DECODE)
    members = members or [item for item in fleet.with_role(Role.PREFILL) if item.pooling]
    return max((item.capacity_tokens for item in members), default=None)
