"""`splitserve routes` against a router that is in the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import yaml

from protos import router_admin_pb2, router_admin_pb2_grpc
from tests.cli.run_cli import cli
from tests.cli.test_explain import DECISION


class FakeRouter(router_admin_pb2_grpc.RouterAdminServicer):
    def __init__(self) -> None:
        self.asked: list[router_admin_pb2.PriceRequest] = []

    def Price(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        if request.text == "too long":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the prompt is too long")
        return DECISION


@pytest.fixture
def router() -> Iterator[tuple[str, FakeRouter]]:
    server, fake = grpc.server(ThreadPoolExecutor(2)), FakeRouter()
    port = server.add_insecure_port("127.0.0.1:0")
    router_admin_pb2_grpc.add_RouterAdminServicer_to_server(fake, server)
    server.start()
    yield f"127.0.0.1:{port}", fake
    server.stop(None).wait()


def test_the_prices_are_shown_and_no_outcome(router: tuple[str, FakeRouter]) -> None:
    address, fake = router
    done = cli("routes", "hello", "--max-tokens", "9", "--tenant", "blue", "--grpc", address)
    assert (done.returncode, done.stderr) == (0, "")
    assert "* prefill-0 -> decode-0" in done.stdout and "outcome" not in done.stdout
    (asked,) = fake.asked
    assert (asked.chat, asked.max_tokens, asked.tenant, asked.n) == ("hello", 9, "blue", 1)


def test_yaml_says_what_json_says(router: tuple[str, FakeRouter]) -> None:
    words = ("routes", "hello", "--raw", "--grpc", router[0], "-o")
    told = [cli(*words, form) for form in ("json", "yaml")]
    assert yaml.safe_load(told[1].stdout) == json.loads(told[0].stdout)


def test_every_form_of_a_prompt_goes_as_what_it_is(router: tuple[str, FakeRouter]) -> None:
    address, fake = router
    for words in (["hello", "--raw"], ["--ids", "1,2,3"], ["--new-tokens", "77"]):
        done = cli("routes", *words, "--grpc", address, "-o", "json")
        assert json.loads(done.stdout)["candidates"][0]["chosen"] is True
    text, listed, new = fake.asked
    assert text.text == "hello" and list(listed.ids.ids) == [1, 2, 3] and new.new_tokens == 77


@pytest.mark.parametrize("words", [[], ["hello", "--ids", "1"], ["--ids", "1,x"], ["--ids", "-1"]])
def test_no_prompt_two_prompts_and_ids_that_are_none_are_wrong_usage(words: list[str]) -> None:
    assert cli("routes", *words).returncode == 2


def test_a_refusal_is_exit_code_1_and_no_router_3(router: tuple[str, FakeRouter]) -> None:
    refused = cli("routes", "too long", "--raw", "--grpc", router[0])
    assert refused.returncode == 1 and "too long" in refused.stderr
    assert cli("routes", "hello", "--grpc", "127.0.0.1:1").returncode == 3
