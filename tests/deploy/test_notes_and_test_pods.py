"""What whoever installs is told, and what `helm test` asks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.deploy.chart import Manifest, helm, rendered

_ON_GPUS: Manifest = {"worker": {"gpus": {"count": 1}}}


def notes(values: Manifest) -> str:
    """As helm prints them after an installation."""
    done = helm("install", "demo", "--dry-run=client", values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:\n")[2]


def asked_in(values: Manifest, folder: Path, **environ: str) -> str:
    """What the pod that chats says, with a `splitserve` that repeats its arguments."""
    program = folder / "splitserve"
    program.write_text('#!/bin/sh\necho "asked: $*"\n')
    program.chmod(0o755)
    (container,) = rendered(values).pods["demo-test-chat"]["spec"]["containers"]
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(
        container["command"], env={"PATH": path, **environ}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def key_of(values: Manifest) -> Manifest | None:
    """Where the pod that chats has its key from."""
    found = [item for item in rendered(values).env("demo-test-chat") if "valueFrom" in item]
    return found[0]["valueFrom"]["secretKeyRef"] if found else None


IN_STORE: Manifest = {"apiKeys": {"inStore": True}, "router": {"store": {"url": "redis://r"}}}


def test_helm_test_asks_with_the_key_and_where_it_has_none_it_says_so_and_does_not_fail(
    tmp_path: Path,
) -> None:
    said = asked_in({}, tmp_path, OPENAI_API_KEY="sk-1")
    assert said == "asked: chat --url http://demo:8000 --once Are you there?\n"
    assert "no question was asked" in (told := asked_in(IN_STORE, tmp_path))
    assert "apiKeys.testSecret" in told


@pytest.mark.parametrize(
    ("keys", "secret"),
    [
        ({}, {"name": "demo-api-keys", "key": "key", "optional": True}),
        ({"existingSecret": "keys"}, {"name": "keys", "key": "key", "optional": True}),
        ({"inStore": True}, None),
        (
            {"inStore": True, "testSecret": {"name": "mine", "key": "word"}},
            {"name": "mine", "key": "word", "optional": False},
        ),
        ({"enabled": False}, None),
    ],
)
def test_helm_test_has_its_key_from_a_secret_that_may_be_named(
    keys: Manifest, secret: Manifest | None
) -> None:
    store = {"url": "redis://r"} if keys.get("inStore") else {}
    assert key_of({"apiKeys": keys, "router": {"store": store}}) == secret


def test_a_door_without_keys_is_asked_without_a_shell() -> None:
    pod = rendered({"apiKeys": {"enabled": False}}).pods["demo-test-chat"]
    (container,) = pod["spec"]["containers"]
    assert container["args"][0] == "chat" and "command" not in container


def test_the_line_to_ask_by_fits_the_certificate() -> None:
    assert "  curl http://127.0.0.1:8000/v1" in notes({})
    own = notes({"tls": {"secret": "certs"}})
    assert "curl --resolve demo:8000:127.0.0.1 https://demo:8000/v1" in own and "has -k" in own
    known = notes({"tls": {"secret": "certs", "hasCa": True, "dnsNames": ["*.example.com"]}})
    address = "demo.example.com:8000"
    assert f"--resolve {address}:127.0.0.1 --cacert demo-ca.crt https://{address}/v1" in known
    assert r"get secret certs -o jsonpath='{.data.ca\.crt}' | base64 -d > demo-ca.crt" in known
    assert "has -k" not in known


def test_who_has_gpus_to_spare_is_told_how_an_update_leaves_no_gap() -> None:
    assert "surge" not in notes({})
    told = notes({**_ON_GPUS, "pools": {"decode": {"surge": 1}, "prefill": {"replicas": 2}}})
    assert "pools.prefill.surge" in told and "pools.decode.surge" not in told
    assert "of one worker none is left" in notes(_ON_GPUS)


def test_a_claim_that_many_write_to_comes_with_a_word_on_classes_that_can() -> None:
    cache: Manifest = {"claim": "models", "create": True, "storageClass": "fast"}
    told = notes({"model": {"cache": cache}})
    assert "ReadWriteMany" in told and "(fast has to)" in told
    assert "ReadWriteMany" not in notes({"model": {"cache": cache | {"create": False}}})


def test_the_wait_comes_with_what_pods_ask_for_and_how_to_see_that_one_has_no_room() -> None:
    told = notes({"pools": {"decode": {"resources": {"requests": {"cpu": "7"}}}}})
    assert "a router 1 CPU and 1Gi of memory, a worker of decode 7 CPU and 4Gi of memory" in told
    assert ", a worker of prefill 2 CPU and 4Gi of memory (resources.requests)" in told
    assert "get events --field-selector reason=FailedScheduling" in told


def test_where_nothing_is_asked_for_the_notes_say_so() -> None:
    told = notes({"router": {"resources": None}, "worker": {"resources": None}})
    nothing = "no CPU and no memory"
    assert f"a router {nothing}, a worker of decode {nothing}" in told


def test_sizes_given_by_hand_are_said_to_stay() -> None:
    assert "stay through helm upgrade" in notes({})


def test_who_names_no_registry_is_told_that_nobody_publishes_images() -> None:
    assert "Nobody publishes these images" in notes({})
    assert "localhost/splitserve/worker" in notes({})
    for registry in ("ghcr.io/acme", ""):
        assert "Nobody publishes" not in notes({"image": {"registry": registry}})
