"""A release of the chart on a mini cluster whose containers are containers: of the images that are
built here, under the chart's own security context, by podman and by runc alone."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest

from cluster.home import default_home
from tests.deploy.chart import Manifest
from tests.deploy.images.containers import Containers, Engine, Podman, Runc, RunningContainer
from tests.deploy.images.storage import Storage
from tests.deploy.release import CLAIM, NAME, VALUES, Release
from tests.fleet.support import wait_for
from tests.mini_cluster.machine import running_cluster

pytestmark = [pytest.mark.minutes, pytest.mark.timeout(3000, func_only=True)]
INSTALLED: Manifest = VALUES | {
    "model": VALUES["model"] | {"cache": {"claim": CLAIM, "readOnly": True}},
    "pools": {"prefill": {"replicas": 1}, "decode": {"replicas": 2}},
}
_NOTE = (
    "The children learn the rivers of Europe, its mountains and its seas, and how ships go. " * 8
)
_LONG: Manifest = {"model": "smollm2", "prompt": f"{_NOTE}Once upon a time", "temperature": 0}
_LONG |= {"max_tokens": 200, "ignore_eos": True}
_GONE_WITHIN_S = 120.0
_DONE = "data: [DONE]"


@dataclass(frozen=True)
class Installed:
    """A router, a prefill worker and two decode workers."""

    release: Release
    containers: Containers

    def pods(self, component: str) -> list[str]:
        return [pod.removeprefix("pod/") for pod in self.release.pods(component)]

    def container(self, pod: str) -> RunningContainer:
        return self.containers.begun[pod]

    def inside(self, pod: str, *command: str) -> tuple[int, str]:
        return self.release.cluster.wait_for(self.container(pod).run_inside(command))

    def metrics(self, pod: str) -> dict[str, float]:
        """Of a worker, by name and labels."""
        address = self.release.get("pods", pod)["status"]["podIP"]
        page = httpx.get(f"http://{address}:9400/metrics", trust_env=False).text
        lines = [line for line in page.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def streaming(self) -> str:
        """The decode worker's pod that has the only request."""
        running = 'splitserve_worker_sequences{state="running"}'
        (pod,) = [pod for pod in self.pods("decode-worker") if self.metrics(pod)[running]]
        return pod

    def wait_until_whole(self) -> None:
        for pool in ("prefill", "decode"):
            self.release.rollout(pool)
        everybody = [{"decode": 2, "prefill": 1}]
        wait_for(
            lambda: self.release.members_at_routers() == everybody, timeout_s=120, what="workers"
        )


@pytest.fixture(scope="module", params=[Podman, Runc], ids=["podman", "runc"])
def installed(
    request: pytest.FixtureRequest,
    storage: Storage,
    router: str,
    worker: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installed]:
    """The model lies in a claim that pods mount read-only."""
    make: Callable[[Storage], Engine] = request.param
    containers = Containers(storage, make(storage))
    folder = tmp_path_factory.mktemp("cluster")
    shutil.copytree(default_home() / "models" / "smollm2", folder / "home" / "models" / "smollm2")
    with running_cluster(folder, {CLAIM: folder / "home"}, containers) as cluster:
        release = Release(cluster)
        release.install(INSTALLED)
        made = Installed(release, containers)
        made.wait_until_whole()
        yield made


def test_processes_have_what_the_chart_gives_them_and_nothing_else(installed: Installed) -> None:
    for component in ("router", "prefill-worker", "decode-worker"):
        pod = installed.pods(component)[0]
        code, said = installed.inside(pod, "cat", "/proc/1/status")
        status = dict(line.split(":", 1) for line in said.splitlines())
        assert code == 0
        assert status["Uid"].split() == ["65532"] * 4
        assert {status[name].strip() for name in ("CapPrm", "CapEff", "CapBnd")} == {"0" * 16}
        assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")
        for folder in ("/", "/opt/splitserve/bin", "/etc", "/var/lib"):
            code, said = installed.inside(pod, "touch", f"{folder}/new")
            assert code != 0 and ("Read-only" in said or "denied" in said), said


async def test_an_answer_goes_over_a_real_handoff(installed: Installed) -> None:
    await answer(installed)
    decode = [installed.metrics(pod) for pod in installed.pods("decode-worker")]
    first = 'splitserve_worker_handoffs_total{outcome="first"}'
    assert sum(page.get(first, 0) for page in decode) == 1
    read = [v for page in decode for n, v in page.items() if "kv_transfer_bytes_total" in n]
    assert sum(read) > 0


def test_the_doctor_finds_a_worker_s_container_fit(installed: Installed) -> None:
    """But for Triton, which a container for CPUs does without, and locked memory, which RDMA alone
    wants."""
    pod = installed.pods("decode-worker")[0]
    code, said = installed.inside(pod, "splitserve", "doctor", "-o", "json")
    assert code == 0, said
    rows = json.loads(said[said.index("[") : said.rindex("]") + 1])
    found = {row["check"]: row["text"] for row in rows if row["verdict"] != "ok"}
    of_the_machine = {"memory", "port", "grpc-port"}
    if "this CPU lacks" in found.get("cpu-kernels", ""):
        of_the_machine |= {"cpu", "cpu-kernels", "collectives"}
    assert set(found) <= {"triton", "memlock"} | of_the_machine, found


def test_a_worker_s_kernels_are_native_and_came_with_the_image(installed: Installed) -> None:
    for component in ("decode-worker", "prefill-worker"):
        pod = installed.pods(component)[0]
        made = ("find", "/var/cache/splitserve", "-name", "*.so")
        assert installed.inside(pod, *made) == (0, "")
        assert installed.inside(pod, "sh", "-c", "command -v cc c++ gcc")[1] == ""
        assert "no C++ compiler" not in installed.release.cluster.kubectl("logs", pod)


async def test_the_end_of_a_decode_container_in_a_stream_is_not_seen(installed: Installed) -> None:
    """One is killed, and comes again; then one is asked to end, and drains first."""
    expected = await answer(installed)
    for ending in (RunningContainer.kill, RunningContainer.terminate):
        installed.wait_until_whole()
        async with installed.release.client() as client:
            pieces = stream(client)
            said = [await anext(pieces)]
            pod = await asyncio.to_thread(installed.streaming)
            ending(installed.container(pod))
            said += [piece async for piece in pieces]
        assert said[-1] == _DONE
        assert words_of(said) == expected


async def test_helm_s_own_test_passes_and_nothing_is_left(
    installed: Installed, storage: Storage
) -> None:
    installed.wait_until_whole()
    assert "Phase:          Succeeded" in installed.release.cluster.helm("test", NAME)
    installed.release.cluster.helm("uninstall", NAME)
    began = list(installed.containers.begun.values())
    wait_for(
        lambda: all(container.is_over for container in began),
        timeout_s=_GONE_WITHIN_S,
        what="the end of all containers",
    )
    assert storage.podman("ps", "--all", "--quiet") + storage.buildah("containers", "-q") == ""


async def answer(installed: Installed) -> str:
    async with installed.release.client() as client:
        got = await client.post("/v1/completions", json=_LONG)
    assert got.status_code == 200, got.text
    text: str = got.json()["choices"][0]["text"]
    return text


async def stream(client: httpx.AsyncClient) -> AsyncIterator[str]:
    """Its events."""
    async with client.stream("POST", "/v1/completions", json=_LONG | {"stream": True}) as got:
        assert got.status_code == 200, await got.aread()
        async for line in got.aiter_lines():
            if line.startswith("data: "):
                yield line


def words_of(events: list[str]) -> str:
    found = [json.loads(event.removeprefix("data: ")) for event in events if event != _DONE]
    return "".join(choice["text"] for event in found for choice in event["choices"])
