"""A worker process's life, and what it still has to finish."""

import pytest

from cluster.errors import Draining, NotReady
from cluster.generation import EngineLoad
from cluster.identity import Role
from cluster.process.lifespan import Lifespan, ProcessState
from cluster.retry_after import DEFAULT_RETRY_AFTER_S, no_jitter, retry_after_s
from worker.metrics import WorkerMetrics


async def test_work_is_admitted_only_when_ready():
    lifespan = Lifespan()
    with pytest.raises(NotReady, match="loading"):
        lifespan.admit()
    lifespan.advance(ProcessState.READY)
    lifespan.admit()
    lifespan.advance(ProcessState.DRAINING)
    with pytest.raises(Draining) as refused:
        lifespan.admit()
    assert retry_after_s(refused.value, no_jitter) == DEFAULT_RETRY_AFTER_S


async def test_a_drain_waits_for_the_last_lease_and_a_lease_counts_once():
    lifespan = Lifespan()
    lifespan.advance(ProcessState.READY)
    one, two = lifespan.admit(), lifespan.admit()
    one.release()
    one.release()
    assert lifespan.num_admitted == 1
    assert not await lifespan.wait_idle(0.01)
    with two:
        pass
    assert await lifespan.wait_idle(1)


async def test_life_goes_one_way():
    lifespan = Lifespan()
    assert not lifespan.advance(ProcessState.DRAINING)
    assert lifespan.advance(ProcessState.READY)
    assert lifespan.advance(ProcessState.DRAINING)
    assert not lifespan.advance(ProcessState.READY)
    assert lifespan.advance(ProcessState.STOPPED)


def test_preemptions_are_counted_from_the_engines_running_total():
    metrics = WorkerMetrics(Role.DECODE, "d")
    for total in (0, 3, 3, 5):
        metrics.engine_load(EngineLoad(num_preemptions=total, free_blocks=9))
    value = metrics.registry.get_sample_value
    assert value("splitserve_worker_preemptions_total") == 5
    assert value("splitserve_worker_kv_blocks", {"state": "free"}) == 9
