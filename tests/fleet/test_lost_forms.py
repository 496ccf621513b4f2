"""Answers in a form whose decode worker dies in their middle: another one goes on, by the same
grammar, and the client has the text of an undisturbed answer."""

import asyncio
import json
import os
import signal
from dataclasses import dataclass, field

import httpx
import jsonschema
import pytest

from protos import worker_pb2, worker_pb2_grpc
from tests.fleet.put_directly import members_of
from tests.fleet.support import fleet_channel, wait_for
from tests.fleet.test_drain import continued
from tests.fleet.test_load import is_quiet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

LIMIT_S = 180.0
NUM_STEPS = 8
"""Of a recipe: seconds of tokens, and a signal takes milliseconds."""
PIECES = 9
"""Of text that its client has when the worker is killed."""


def exactly(**properties):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


STEP = exactly(
    action={"type": "string", "minLength": 8, "maxLength": 24},
    place={"enum": ["bowl", "pan", "oven", "table"]},
    minutes={"type": "integer", "minimum": 1, "maximum": 90},
)
RECIPE = exactly(
    title={"type": "string", "maxLength": 30},
    steps={"type": "array", "items": STEP, "minItems": NUM_STEPS, "maxItems": NUM_STEPS},
)
FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "recipe", "schema": RECIPE, "strict": True},
}
TOOL = {"name": "note_recipe", "description": "Keeps a recipe", "parameters": RECIPE}
WISHES = {
    "a schema": {"response_format": FORMAT},
    "a call": {
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    },
}
ASK = [{"role": "user", "content": "How do I bake bread? Give me the recipe, step by step."}]


@dataclass
class Told:
    """What a client has so far of an answer's text, or of its call's arguments."""

    text: str = ""
    names: list[str] = field(default_factory=list)
    reason: str | None = None
    num_pieces: int = 0

    def take(self, event):
        assert "error" not in event, event
        for choice in event["choices"]:
            calls = [call["function"] for call in choice["delta"].get("tool_calls") or ()]
            self.names += [call["name"] for call in calls if call.get("name")]
            pieces = [call.get("arguments") for call in calls] or [choice["delta"].get("content")]
            self.text += "".join(filter(None, pieces))
            self.num_pieces += any(pieces)
            self.reason = choice["finish_reason"] or self.reason


async def asked(fleet, kind, salt, in_its_middle=None):
    """The whole answer; `in_its_middle` is called once."""
    body = {"model": "smollm2", "messages": ASK, "stream": True, "cache_salt": salt}
    body |= {"seed": 23, "temperature": 0.8, "max_tokens": 900, **WISHES[kind]}
    told, is_disturbed = Told(), in_its_middle is None
    async with (
        httpx.AsyncClient(base_url=fleet.url, timeout=LIMIT_S) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as reply,
    ):
        assert reply.status_code == 200, await reply.aread()
        async for line in reply.aiter_lines():
            if line.startswith("data: {"):
                told.take(json.loads(line.removeprefix("data: ")))
            if told.num_pieces >= PIECES and not is_disturbed:
                is_disturbed = True
                await in_its_middle()
    return told


async def decoding(fleet):
    """Status of the one decode worker that has something to do."""
    async with fleet_channel(fleet.grpc_address) as router:
        members = [member for member in await members_of(router) if member.role == "decode"]
    async with asyncio.timeout(LIMIT_S):
        while True:
            for member in members:
                async with fleet_channel(member.address) as channel:
                    admin = worker_pb2_grpc.WorkerAdminStub(channel)
                    status = await admin.Status(worker_pb2.StatusRequest())
                if status.load.num_running:
                    return member, status


@pytest.mark.parametrize(("kind", "dies"), [("a schema", "worker"), ("a call", "engine")])
async def test_an_answer_in_a_form_goes_on_where_its_worker_dies_as_if_nothing_had_been(
    double_fleet, kind, dies
):
    expected = await asked(double_fleet, kind, "undisturbed")
    await asyncio.to_thread(
        wait_for, lambda: is_quiet(double_fleet), timeout_s=LIMIT_S, what="nothing else to do"
    )
    before = continued(double_fleet)

    async def kill():
        member, status = await decoding(double_fleet)
        os.kill(member.pid if dies == "worker" else status.engine_pid, signal.SIGKILL)

    found = await asked(double_fleet, kind, f"{dies} dies", kill)
    assert continued(double_fleet) == before + 1
    assert (found.text, found.names, found.reason) == (
        expected.text,
        expected.names,
        expected.reason,
    )
    assert found.names == ([TOOL["name"]] if kind == "a call" else [])
    assert found.reason == ("tool_calls" if kind == "a call" else "stop")
    jsonschema.validate(json.loads(found.text), RECIPE)
    await asyncio.to_thread(
        wait_for,
        lambda: len(double_fleet.status()["members"]) == 4 and is_quiet(double_fleet),
        timeout_s=LIMIT_S,
        what="a whole fleet at rest",
    )
