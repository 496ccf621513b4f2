"""The engine process: started by worker/engine/engine_child.py, one per worker.

    read the launch from standard input -> load the model (LoadProgress...) -> Ready | EngineFailed
    -> loop until Stop -> exit

A worker package's entry module calls `engine_main` with its extension factory.
The process dies with its parent, and leaves SIGINT to it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable

import structlog

from cluster.errors import InternalError, SplitserveError, status_of
from cluster.logs import configure_logging
from cluster.models.head_share import head_shares
from cluster.models.text.grammars import load_grammar_tokenizer
from cluster.process.parent_death import die_with_parent
from cluster.process.priority import step_back
from cluster.rank_facts import RankFacts
from engine.contract.head_in_blocks import whole_layers
from engine.contract.messages import AwaitsRanks, EngineFailed, LoadProgress, Ready
from engine.contract.spec import EngineLaunch, EngineSpec
from engine.model.load_phases import PhaseProgress
from engine.process.channel import MessageSink, ZmqChannel
from engine.process.extension import EngineParts, ExtensionFactory, PoolAccess
from engine.process.load_ranks import loader_of
from engine.process.loop import EngineLoop
from engine.process.memory_habits import keep_freed_memory, spare_loaded_objects
from engine.process.threads import core_clock_of, use_threads_to_load, use_threads_to_serve
from engine.runner.model_runner import Replica
from engine.runner.other_ranks import OtherRanks
from engine.sampling.grammars.compiler import GrammarCompiler
from engine.step.engine import Engine
from engine.step.speculation import may_change_texts

_LOG = structlog.get_logger()

GRAMMARS_WAIT_S = 10.0
"""Before Ready, for a tokenizer that is loaded beside the weights: what comes then finds it."""
ReplicaLoader = Callable[[EngineSpec, PhaseProgress], Replica]


def engine_main(
    make_extension: ExtensionFactory,
    *,
    rank_module: str = "",
    load: ReplicaLoader | None = None,
) -> None:
    """The whole life of the process. `rank_module` is the entry module of its other ranks' ones;
    `load` is for where no model is wanted."""
    launch = EngineLaunch.unpack(sys.stdin.buffer.read())
    die_with_parent()
    configure_logging(f"{launch.spec.worker_id}/engine")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    channel = ZmqChannel(
        commands_address=launch.commands_address, frames_address=launch.frames_address
    )
    with contextlib.ExitStack() as closers:  # a close may hang: the cause is told before
        closers.callback(channel.close)
        try:
            run_engine_process(
                launch.spec,
                make_extension,
                channel=channel,
                load=load or loader_of(rank_module),
                closers=closers,
            )
        except SplitserveError as error:
            _LOG.error("the engine cannot go on", code=status_of(error).code, error=error.message)
            channel.send(EngineFailed(status_of(error).code, error.message))
            sys.exit(1)
        except Exception as error:
            _LOG.exception("the engine cannot go on; the process ends")
            failure = InternalError(f"the engine stopped with {type(error).__name__}: {error}")
            channel.send(EngineFailed(status_of(failure).code, failure.message))
            raise


def run_engine_process(
    spec: EngineSpec,
    make_extension: ExtensionFactory,
    *,
    channel: ZmqChannel,
    load: ReplicaLoader,
    closers: contextlib.ExitStack,
) -> None:
    """Loads, says Ready, and loops until Stop. What is to be closed afterwards is in `closers`."""
    step_back(spec.options.niceness)  # before any thread: they inherit it
    use_threads_to_load(spec.options.num_threads)
    grammars = GrammarCompiler(lambda: load_grammar_tokenizer(spec.card))
    closers.callback(grammars.close)
    replica = load(spec, lambda phase, fraction: channel.send(LoadProgress(phase, fraction)))
    if replica.others is not None:
        _tell_of_waits(channel, replica.others, closers)
    use_threads_to_serve(replica.kv.device)
    core_clock = core_clock_of(replica.kv.device)
    engine = Engine(replica, spec.options, core_clock=core_clock, grammars=grammars)
    closers.callback(engine.masking.close)
    if engine.why_no_drafts is not None:
        _LOG.info("coming tokens are not guessed", why=engine.why_no_drafts)
    elif may_change_texts(replica, spec.options.speculation_wish):
        _LOG.warning("texts with and without guesses may differ, as those of other batches do")
    extension = make_extension(_parts(spec, replica, engine))
    closers.callback(extension.close)
    engine.ask_of_reads(extension.has_reads)
    grammars.await_load(GRAMMARS_WAIT_S)
    spare_loaded_objects()
    _say_ready(channel, replica, extension)
    EngineLoop(engine, extension, channel, group=replica.group_turn).run()


def _parts(spec: EngineSpec, replica: Replica, engine: Engine) -> EngineParts:
    num_ranks, num_homes = spec.options.tensor_parallel_size, replica.num_homes
    return EngineParts(
        spec=spec,
        kv=replica.kv,
        generations=engine.placement.pool.generations,
        shares=head_shares(
            spec.card.config,
            num_ranks,
            num_homes=num_homes,
            num_whole_layers=whole_layers(spec),
        ),
        receiving_blocks=engine.receiving_blocks,
        line=replica.others,
        num_homes=num_homes,
    )


def _tell_of_waits(channel: ZmqChannel, others: OtherRanks, closers: contextlib.ExitStack) -> None:
    """They are closed first: their watch speaks beside the loop until then."""
    aside = channel.beside()
    closers.callback(aside.close)
    closers.callback(others.close)
    others.on_wait(lambda: aside.send(AwaitsRanks()))


def _say_ready(sink: MessageSink, replica: Replica, extension: PoolAccess) -> None:
    sink.send(
        Ready(
            pid=os.getpid(),
            loaded=replica.loaded,
            total_blocks=replica.homes.num_blocks,
            max_context_tokens=replica.max_context_tokens,
            vocab_size=replica.vocab_size,
            peer=extension.peer,
            kv_transport=extension.transport,
            load_phases_ms=replica.load_phases_ms,
            ranks=_ranks_of(replica),
        )
    )


def _ranks_of(replica: Replica) -> list[RankFacts]:
    if replica.others is not None:
        return replica.others.facts
    alone = RankFacts(
        rank=0,
        pid=os.getpid(),
        node=socket.gethostname(),
        device=str(replica.kv.device),
        generation=0,
        kv_heads=tuple(range(replica.kv.shape[3])),
        kv_bytes=replica.kv.nbytes,
    )
    return [alone]
