"""The pod that is named is the one that goes, or it is said that it is not."""

from __future__ import annotations

import asyncio

import pytest

from cluster.errors import LoginLost, WorkerLost
from cluster.scaling.groups import Object
from cluster.scaling.kubernetes import KubernetesScaler
from cluster.scaling.kubernetes_call import refused
from cluster.scaling.scaler import NotSettled, RefusalReason, ScaleOrder, ScaleRefused
from tests.cluster.scaling.played_kubernetes import PlayedDeployments, deployment, pods_of

ORDER = ScaleOrder(pool="prefill", size=1, leaving=("chat-prefill-7d9f-x2",))
TRIAL = ScaleOrder(pool="prefill", size=1, leaving=ORDER.leaving, is_dry_run=True)


@pytest.fixture
def api() -> PlayedDeployments:
    played = PlayedDeployments(deployment("prefill", 2), deployment("prefill-big", 2))
    played.pods = pods_of("prefill", "x1", "x2") | pods_of("prefill-big", "y1", "y2")
    played.get_ready()
    return played


async def test_the_pod_that_was_named_goes_and_a_dry_run_prices_none(
    api: PlayedDeployments,
) -> None:
    scaler = KubernetesScaler(api, "chat")
    assert (await scaler.scale(TRIAL)).leaving == ORDER.leaving and api.costs() == {}
    await scaler.scale(ORDER)
    going = [name for name, pod in api.pods.items() if "deletionTimestamp" in pod["metadata"]]
    assert going == ["chat-prefill-7d9f-x2"]


@pytest.mark.parametrize("name", ["other-1", "chat-prefill-7d9f-x9", "chat-prefill-big-7d9f-y1"])
async def test_what_is_no_pod_of_the_pool_is_refused(api: PlayedDeployments, name: str) -> None:
    order = ScaleOrder(pool="prefill", size=1, leaving=(name,))
    with pytest.raises(ScaleRefused, match="is no pod of prefill;") as failure:
        await KubernetesScaler(api, "chat").scale(order)
    assert failure.value.reason is RefusalReason.NO_SUCH_WORKER and api.costs() == {}


@pytest.mark.parametrize(
    "status",
    [
        {"readyReplicas": 1},
        {"replicas": 3, "readyReplicas": 3},
        {"updatedReplicas": 1},
        {"observedGeneration": 0},
    ],
)
async def test_of_a_pool_that_is_not_settled_none_can_be_named(
    api: PlayedDeployments, status: dict[str, int]
) -> None:
    api.items["chat-prefill"]["status"] |= status
    for order in (TRIAL, ORDER):
        with pytest.raises(ScaleRefused, match="try again when all are ready") as failure:
            await KubernetesScaler(api, "chat").scale(order)
        assert failure.value.reason is RefusalReason.CHANGING
    assert api.costs() == {} and api.items["chat-prefill"]["spec"]["replicas"] == 2
    await KubernetesScaler(api, "chat").scale(ScaleOrder(pool="prefill", size=1))


@pytest.mark.parametrize("before", [{}, {"chat-prefill-7d9f-x2": "7"}])
async def test_a_scale_that_is_refused_leaves_the_cost_as_it_was(
    api: PlayedDeployments, before: dict[str, str]
) -> None:
    for name, cost in before.items():
        await api.set_deletion_cost(name, cost, is_dry_run=False)
    api.refuses_scale = refused(403, 'cannot patch resource "deployments/scale"')
    with pytest.raises(ScaleRefused, match="deployments/scale"):
        await KubernetesScaler(api, "chat").scale(ORDER)
    assert api.costs() == before


async def test_a_mark_whose_answer_was_lost_is_taken_off_again(
    api: PlayedDeployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = api.set_deletion_cost

    async def unheard(pod: str, cost: str | None, *, is_dry_run: bool) -> None:
        await marked(pod, cost, is_dry_run=is_dry_run)
        if cost is not None:
            raise WorkerLost("the API server does not answer")

    monkeypatch.setattr(api, "set_deletion_cost", unheard)
    with pytest.raises(WorkerLost):
        await KubernetesScaler(api, "chat").scale(ORDER)
    assert api.costs() == {} and api.items["chat-prefill"]["spec"]["replicas"] == 2


async def test_an_operator_who_breaks_off_leaves_no_mark(
    api: PlayedDeployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def never(*words: object, **options: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(api, "patch_scale", never)
    scaling = asyncio.create_task(KubernetesScaler(api, "chat").scale(ORDER))
    await asked.wait()
    assert api.costs() != {}
    scaling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scaling
    assert api.costs() == {}


@pytest.mark.parametrize("loss", ["is_silent", "knows_who_asks"])
async def test_who_does_not_answer_whether_it_goes_has_answered_that_the_pool_was_scaled(
    loss: str, api: PlayedDeployments, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaled = api.patch_scale

    async def last(pool: Object, replicas: int, *, is_dry_run: bool) -> None:
        await scaled(pool, replicas, is_dry_run=is_dry_run)
        setattr(api, loss, not getattr(api, loss))

    monkeypatch.setattr(api, "patch_scale", last)
    words = "prefill was scaled, and whether chat-prefill-7d9f-x2 goes was not seen: the API server"
    with pytest.raises(WorkerLost, match=words) as failure:
        await KubernetesScaler(api, "chat").scale(ORDER)
    assert isinstance(failure.value, LoginLost) is (loss == "knows_who_asks")


async def test_it_is_said_when_another_pod_went_and_the_named_one_is_not_marked_any_longer(
    api: PlayedDeployments,
) -> None:
    api.goes_instead = "chat-prefill-7d9f-x1"
    with pytest.raises(NotSettled, match="chat-prefill-7d9f-x2 stays: another pod"):
        await KubernetesScaler(api, "chat").scale(ORDER)
    assert api.costs() == {}


async def test_controllers_that_do_nothing_are_not_waited_for_without_end(
    api: PlayedDeployments,
) -> None:
    looks: list[float] = []

    async def slept(seconds: float) -> None:
        looks.append(seconds)

    api.pods = {"chat-prefill-7d9f-x2": api.pods["chat-prefill-7d9f-x2"]}
    api.goes_instead = ""
    api._lose_one = lambda deployment: None  # type: ignore[method-assign]
    with pytest.raises(NotSettled, match="has not begun to end"):
        await KubernetesScaler(api, "chat", slept).scale(ORDER)
    assert len(looks) == 30 and api.costs() != {}
