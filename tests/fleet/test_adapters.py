"""Adapters in a fleet of real processes: texts of merged weights through prefill and decode pools,
loaded, changed and unloaded while requests run."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

import grpc
import httpx
import pytest
import torch

from cluster.join_token import operators_token
from cluster.models.adapters.files import read_adapter
from cluster.models.cache.store import ModelStore
from protos import (
    inference_pb2,
    inference_pb2_grpc,
    router_admin_pb2,
    router_admin_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from tests.adapter_files import merge, random_tensors, save_adapter
from tests.fleet.one_fleet import ENGINE, PATIENT
from tests.fleet.put_directly import greedy_submit, members_of, submit_alone
from tests.fleet.support import Fleet, fleet_channel, running_fleet, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RANK, ALPHA, MAX_TOKENS = 8, 0.5, 10
STREAMED_TOKENS, VISITS = 30, 4
PROMPT = "The capital of France is Paris, and the capital of Italy is Rome. " * 12
"""Long enough for a prefill worker to be worth it."""


def save(root: Path, name: str, seed: int) -> None:
    config = ModelStore().resolve("smollm2").config
    save_adapter(root / name, config, rank=RANK, alpha=ALPHA, seed=seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("adapters")
    save(root, "one", 1)
    save(root, "two", 2)
    return root


@pytest.fixture(scope="module")
def fleet(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    adapters = ("--adapters", str(folder), "--adapter-ranks", "24")
    options = ("--dtype", "float32", *ENGINE, *PATIENT, *adapters)
    with running_fleet(tmp_path_factory.mktemp("logs"), *options, num_workers=2) as running:
        yield running


@pytest.fixture(scope="module")
def truth(reference):
    """Greedy tokens of transformers on merged weights, by the seed of the adapter; 0: none."""
    config = ModelStore().resolve("smollm2").config
    base = {name: tensor.detach().clone() for name, tensor in reference._model.state_dict().items()}

    def of(seed: int) -> list[int]:
        state = base
        if seed:
            tensors = random_tensors(config, rank=RANK, seed=seed)
            state = merge(base, tensors, ALPHA / RANK)
        with torch.inference_mode():  # where others asked it first its weights belong there
            reference._model.load_state_dict(state)
        try:
            ids = reference.tokenizer(PROMPT)["input_ids"]
            with torch.inference_mode():
                made = reference._model.generate(
                    torch.tensor([ids]),
                    attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
                    max_new_tokens=MAX_TOKENS,
                    do_sample=False,
                    eos_token_id=None,
                    pad_token_id=0,
                )
            return made[0, len(ids) :].tolist()
        finally:
            with torch.inference_mode():
                reference._model.load_state_dict(base)

    return cache(of)


def asked(model: str, **changes: object) -> dict[str, object]:
    body = {"model": model, "prompt": PROMPT, "max_tokens": MAX_TOKENS, "temperature": 0}
    return {**body, "ignore_eos": True, **changes}


def answer(fleet: Fleet, model: str, **changes: object) -> httpx.Response:
    return httpx.post(f"{fleet.url}/v1/completions", json=asked(model, **changes), timeout=120)


def text(fleet: Fleet, model: str, **changes: object) -> str:
    found = answer(fleet, model, **changes)
    assert found.status_code == 200, found.text
    assert found.json()["model"] == model
    return str(found.json()["choices"][0]["text"])


def base_name(fleet: Fleet) -> str:
    return str(httpx.get(f"{fleet.url}/v1/models").json()["data"][0]["id"])


def listed(fleet: Fleet) -> dict[str, str | None]:
    """Parents by name."""
    models = httpx.get(f"{fleet.url}/v1/models").json()["data"]
    return {model["id"]: model.get("parent") for model in models}


def order(fleet: Fleet, verb: str, token: str | None, **body: str) -> httpx.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.post(
        f"{fleet.url}/v1/{verb}_lora_adapter", json=body, headers=headers, timeout=120
    )


def test_texts_are_those_of_merged_weights(fleet, reference, truth) -> None:
    base = base_name(fleet)
    assert listed(fleet) == {base: None, "one": base, "two": base}
    decode = reference.tokenizer.decode
    for model, seed in (("one", 1), (base, 0), ("two", 2), ("one", 1)):
        found = answer(fleet, model, timings=True)
        assert found.status_code == 200, found.text
        assert found.json()["choices"][0]["text"] == decode(truth(seed))


async def test_a_prompt_is_prefilled_elsewhere_by_the_same_version(
    fleet, reference, truth, folder
) -> None:
    config = ModelStore().resolve("smollm2").config
    digest = read_adapter(folder, folder / "two", config).digest
    prompt, chance = reference.tokenizer(PROMPT)["input_ids"], Random(3)
    async with fleet_channel(fleet.grpc_address) as router:
        members = {member.worker_id: member for member in await members_of(router)}
    async with fleet_channel(members["decode-0"].address) as channel:
        for adapter, code in ((digest, ""), ("0" * 32, "adapter_gone")):
            submit = greedy_submit(prompt, MAX_TOKENS, [members["prefill-0"]], chance)
            submit.adapter = adapter
            tokens, ended = await submit_alone(channel, members["decode-0"], submit)
            assert ended.error.code == code
            if not code:
                assert tokens == truth(2)
                assert ended.timing.prefill_worker == "prefill-0"
                assert ended.timing.kv_bytes > 0


async def test_grpc_asks_by_the_same_names(fleet, reference, truth) -> None:
    async with fleet_channel(fleet.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        models = (await stub.ListModels(inference_pb2.ListModelsRequest())).models
        assert {(model.id, bool(model.parent)) for model in models} >= {("one", True)}
        request = inference_pb2.GenerateRequest(model="one", text=PROMPT)
        request.sampling.max_tokens, request.sampling.temperature = MAX_TOKENS, 0
        pieces = [event.chunk.text async for event in stub.Generate(request)]
    assert "".join(pieces) == reference.tokenizer.decode(truth(1))


def test_an_unknown_one_is_404_and_never_the_base(fleet) -> None:
    found = answer(fleet, "three")
    assert (found.status_code, found.json()["error"]["code"]) == (404, "model_not_found")


def test_only_the_join_token_loads(fleet, folder) -> None:
    for token in (None, "wrong"):
        refused = order(fleet, "load", token, lora_name="evil", lora_path="one")
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "wrong_token")
    outside = order(fleet, "load", operators_token(), lora_name="evil", lora_path="/etc")
    assert outside.json()["error"]["code"] == "adapter_refused"
    assert "evil" not in listed(fleet)


@dataclass
class Load:
    """Requests that come again and again, and what became of them."""

    fleet: Fleet
    texts: dict[str, list[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    """That are asked for from now on."""

    async def client(self, turn: int) -> None:
        async with httpx.AsyncClient(timeout=120) as http:
            while True:
                model = self.models[turn % len(self.models)]
                turn += 1
                found = await http.post(f"{self.fleet.url}/v1/completions", json=asked(model))
                if found.status_code == 200:
                    self.texts.setdefault(model, []).append(found.json()["choices"][0]["text"])
                else:
                    self.faults.append(f"{model}: {found.text}")

    async def more(self, model: str, count: int) -> None:
        wanted = len(self.texts.get(model, ())) + count
        async with asyncio.timeout(200):
            while len(self.texts.get(model, ())) < wanted and not self.faults:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def loaded(fleet: Fleet, *models: str) -> AsyncIterator[Load]:
    load = Load(fleet, models=list(models))
    async with asyncio.TaskGroup() as clients:
        tasks = [clients.create_task(load.client(turn)) for turn in range(3)]
        yield load
        for task in tasks:
            task.cancel()


async def test_loaded_changed_and_unloaded_under_load_no_request_fails(
    fleet, folder, reference, truth
) -> None:
    """Three fit at once: the fourth evicts one. `one` becomes other weights under the same name."""
    decode, base, token = reference.tokenizer.decode, base_name(fleet), operators_token()
    texts = {seed: decode(truth(seed)) for seed in (0, 1, 2, 3, 4)}
    async with loaded(fleet, base, "one", "two") as load:
        await load.more("two", 2)
        save(folder, "three", 3)  # found by the watch
        await asyncio.to_thread(wait_for, lambda: "three" in listed(fleet), timeout_s=30, what="3")
        save(folder / "deep", "four", 4)
        done = await asyncio.to_thread(
            order, fleet, "load", token, lora_name="four", lora_path="deep/four"
        )
        assert done.status_code == 200, done.text
        assert len(done.json()["workers"]) == 2
        load.models += ["three", "four"]
        await load.more("four", 2)
        await load.more("three", 1)
        save(folder / "deep", "new", 4)
        done = await asyncio.to_thread(
            order, fleet, "load", token, lora_name="one", lora_path="deep/new"
        )
        assert done.status_code == 200, done.text
        seen = len(load.texts["one"])
        load.models.remove("two")
        await load.more("one", 3)
        assert load.texts["one"][-1] == texts[4]
        done = await asyncio.to_thread(order, fleet, "unload", token, lora_name="two")
        assert done.status_code == 200, done.text
        await load.more(base, 2)
    assert load.faults == []
    assert set(load.texts["one"][:seen]) <= {texts[1], texts[4]}
    expected = {base: texts[0], "two": texts[2], "three": texts[3], "four": texts[4]}
    for model, right in expected.items():
        assert set(load.texts[model]) == {right}, model
    assert "two" not in listed(fleet)
    assert answer(fleet, "two").status_code == 404


async def stream(
    http: httpx.AsyncClient, fleet: Fleet, model: str, begun: asyncio.Event | None = None
) -> str:
    """The whole text, `begun` being set by its first event; fails where it is not whole."""
    pieces, reason = list[str](), None
    body = asked(model, stream=True, max_tokens=STREAMED_TOKENS)
    async with http.stream("POST", f"{fleet.url}/v1/completions", json=body) as found:
        assert found.status_code == 200, (await found.aread()).decode()
        async for line in found.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line.removeprefix("data: "))
            assert "error" not in event, line
            for choice in event["choices"]:
                pieces.append(choice["text"])
                reason = choice["finish_reason"] or reason
            if begun is not None:
                begun.set()
    assert reason == "length", f"{model}: {reason} after {pieces}"
    return "".join(pieces)


async def ordered(fleet: Fleet, verb: str, **body: str) -> None:
    """By an operator, who has it."""
    done = await asyncio.to_thread(order, fleet, verb, operators_token(), **body)
    assert done.status_code == 200, done.text


async def visit(http: httpx.AsyncClient, fleet: Fleet, seed: int) -> str:
    """What `guest` streams, which is loaded for it and unloaded once it has begun."""
    begun = asyncio.Event()

    async def unload() -> None:
        await begun.wait()
        await ordered(fleet, "unload", lora_name="guest")

    await ordered(fleet, "load", lora_name="guest", lora_path=f"deep/stream-{seed}")
    assert "guest" in await asyncio.to_thread(listed, fleet)
    async with asyncio.TaskGroup() as both:
        text = both.create_task(stream(http, fleet, "guest", begun))
        both.create_task(unload())
    return text.result()


async def test_streams_go_on_while_adapters_come_and_go_again_and_again(
    fleet, folder, reference, truth
) -> None:
    """One name stands for two adapters by turns, each unloaded while it streams; beside it the
    model alone and two adapters that stay stream all the time. Memory has room for three."""
    base, texts = base_name(fleet), defaultdict[str, list[str]](list)
    for seed in (1, 2, 3, 4):
        save(folder / "deep", f"stream-{seed}", seed)
    for seed in (3, 4):
        await ordered(fleet, "load", lora_name=f"stays-{seed}", lora_path=f"deep/stream-{seed}")
    is_over = asyncio.Event()

    async def client(http: httpx.AsyncClient, model: str) -> None:
        while not is_over.is_set():
            texts[model].append(await stream(http, fleet, model))

    async with httpx.AsyncClient(timeout=120) as http, asyncio.TaskGroup() as clients:
        for model in (base, "stays-3", "stays-4"):
            clients.create_task(client(http, model))
        for turn in range(VISITS):
            seed = 1 + turn % 2
            texts[f"guest {seed}"].append(await visit(http, fleet, seed))
            gone = await http.post(f"{fleet.url}/v1/completions", json=asked("guest"))
            assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
        is_over.set()
    seeds = {base: 0, "stays-3": 3, "stays-4": 4, "guest 1": 1, "guest 2": 2}
    assert set(texts) == set(seeds)
    for model, seed in seeds.items():
        (text,) = set(texts[model])
        assert text.startswith(reference.tokenizer.decode(truth(seed))), model


async def explained(
    router: grpc.aio.Channel, fleet: Fleet, model: str
) -> tuple[list[str], set[str]]:
    """Of a request for it, as `splitserve explain` is told: the notes, and the workers that it had
    to choose from."""
    found = await asyncio.to_thread(answer, fleet, model)
    assert found.status_code == 200, found.text
    asked_of = router_admin_pb2.ExplainRequest(request_id=found.headers["x-request-id"])
    (decision,) = (await router_admin_pb2_grpc.RouterAdminStub(router).Explain(asked_of)).decisions
    ways = [(way.decode_worker, way.prefill_worker) for way in decision.candidates]
    return list(decision.notes), {worker for way in ways for worker in way if worker}


async def test_explain_says_which_adapter_and_who_has_it_and_who_lacks_it(fleet, folder) -> None:
    config = ModelStore().resolve("smollm2").config
    save(folder / "deep", "shared", 5)
    save(folder / "deep", "lonely", 6)
    digests = {
        name: read_adapter(folder, folder / "deep" / name, config).digest
        for name in ("shared", "lonely")
    }
    await ordered(fleet, "load", lora_name="shared", lora_path="deep/shared")
    async with fleet_channel(fleet.grpc_address) as router:
        members = {member.worker_id: member for member in await members_of(router)}
        async with fleet_channel(members["decode-0"].address) as channel:
            only_here = worker_pb2.LoadAdapterRequest(name="lonely", path="deep/lonely")
            await worker_pb2_grpc.WorkerAdminStub(channel).LoadAdapter(only_here)
        await asyncio.to_thread(
            wait_for, lambda: "lonely" in listed(fleet), timeout_s=30, what="its beat"
        )
        notes, workers = await explained(router, fleet, "shared")
        assert notes == [f"computed by adapter shared ({digests['shared']})"]
        assert workers == {"decode-0", "prefill-0"}
        notes, workers = await explained(router, fleet, "lonely")
        assert notes == [
            f"computed by adapter lonely ({digests['lonely']})",
            "prefill-0 does not have that adapter",
        ]
        assert workers == {"decode-0"}


def test_nothing_is_left_behind(fleet) -> None:
    def is_quiet() -> bool:
        status = fleet.status()
        return not any(member["violations"] for member in status["members"])

    wait_for(is_quiet, timeout_s=30, what="invariants hold")
