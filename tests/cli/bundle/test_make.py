"""A support bundle: whole or in part, bounded, and without a secret."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
import stat
import tarfile
from pathlib import Path

import pytest

from cli.bundle import archive as archives
from cli.bundle import make
from cli.bundle.archive import Archive
from cli.bundle.make import gather
from cli.bundle.parts import BundlePart
from cluster.deadline import Deadline
from cluster.redaction import Redactor
from tests.cli.run_cli import clean_environ, cli
from tests.cli.test_status import FakeFleet, running_fleet
from tests.virtual_time import VirtualTime

JOIN_TOKEN = "join-token-planted-0123"
PLANTED = {
    "SPLITSERVE_JOIN_TOKEN": JOIN_TOKEN,
    "SPLITSERVE_STORE": "redis://planted-user:planted-redis-pw@store:6379/0",
    "HF_TOKEN": "hf_PlantedHuggingFace12",
    "HF_ENDPOINT": "https://mirror:planted-mirror-pw@hub.example.com",
    "RAY_REDIS_PASSWORD": "planted-ray-pw",
    "UCX_ODD": "Bearer planted.bearer.word",
    "OPENAI_API_KEY": "planted-openai-key",
}
SECRETS = (
    *(JOIN_TOKEN, "planted-user", "planted-redis-pw", "PlantedHuggingFace12", "planted-mirror-pw"),
    *("planted-ray-pw", "planted.bearer.word", "planted-openai-key", "PlantedApiKey"),
    *("planted-log-pw", "planted-json-pw", "planted-query", "PlantedPrivateKey", "planted-yaml"),
    *("planted-hub-token", "planted-error-pw"),
)
LOG = (
    '{"event": "keys", "authorization": "Bearer planted-log-pw-1"}\n'
    "store redis://:planted-log-pw@h:1/0 is away\n"
    "key sk-abcd1234-PlantedApiKey-zzzz refused\n"
    '{"password": "planted-json-pw", "tokens": 5}\n'
    "GET /x?api_key=planted-query&n=1\n"
    f"token again: {base64.b64encode(JOIN_TOKEN.encode()).decode()}\n"
    "-----BEGIN RSA PRIVATE KEY-----\nPlantedPrivateKey\n-----END RSA PRIVATE KEY-----\n"
    "redis_password: planted-yaml\n"
    "hub says planted-hub-token\n"
    "what happened stays readable: 5 prompt_tokens=17 tokenizer_digest=abc\n"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With logs of two starts, and a hub token."""
    logs = tmp_path / "home" / "logs"
    for start in ("20260101T000000", "20260102T000000"):
        (logs / start).mkdir(parents=True)
    (logs / "20260101T000000" / "router.log").write_text("of the start before\n")
    (logs / "20260102T000000" / "router.log").write_text(LOG)
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "token").write_text("planted-hub-token\n")
    return tmp_path / "home"


def bundled(folder: Path, home: Path, address: str) -> dict[str, str]:
    """What is in it, by name."""
    around = PLANTED | {"SPLITSERVE_HOME": str(home), "HF_HOME": str(home.parent / "hub")}
    path = folder / "out.tar.gz"
    done = cli(
        *("support-bundle", "-o", str(path), "--no-doctor", "--grpc", address),
        environ=clean_environ(**around),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return unpacked(path)


def unpacked(path: Path) -> dict[str, str]:
    contents = {}
    with tarfile.open(path) as packed:
        for info in packed.getmembers():
            file = packed.extractfile(info)
            assert file is not None and info.name.startswith("out/")
            contents[info.name.removeprefix("out/")] = file.read().decode()
    return contents


def fill(fleet: FakeFleet) -> None:
    """One worker that answers, one that does not, and secrets in what is told."""
    fleet.add("decode-0", "decode")
    fleet.add("prefill-0", "prefill")
    fleet.silent.add("prefill-0")
    fleet.members[0].member.kv_reader_secret = "planted-json-pw-curve"
    fleet.members[1].member.kv_transport = "redis://u:planted-error-pw@h is away"


def test_no_planted_secret_is_in_any_file(tmp_path: Path, home: Path) -> None:
    with running_fleet() as fleet:
        fill(fleet)
        contents = bundled(tmp_path, home, fleet.address)
    encoded = tuple(base64.b64encode(each.encode()).decode() for each in SECRETS)
    everywhere = [(s, name) for s in SECRETS + encoded for name in contents if s in contents[name]]
    assert everywhere == []
    log = contents["logs/router.log"]
    assert "what happened stays readable: 5 prompt_tokens=17 tokenizer_digest=abc" in log
    assert "is away" in log and "refused" in log and "***" in contents["members.json"]
    options = json.loads(contents["options/router.json"])
    store = next(each["value"] for each in options if each["option"] == "store")
    assert store == "redis://***@store:6379/0"
    environment = json.loads(contents["environment.json"])
    assert environment["HF_TOKEN"] == "***" and "PATH" not in environment


def test_half_of_a_fleet_that_does_not_answer_is_said_so_and_the_rest_is_there(
    tmp_path: Path, home: Path
) -> None:
    with running_fleet() as fleet:
        fill(fleet)
        contents = bundled(tmp_path, home, fleet.address)
    workers = {each["worker_id"]: each for each in json.loads(contents["status.json"])["members"]}
    assert workers["decode-0"]["problem"] == "" and workers["prefill-0"]["problem"]
    manifest = json.loads(contents["manifest.json"])
    assert {each["name"] for each in manifest["files"]} == contents.keys() - {"manifest.json"}
    missing = {each["name"]: each["why"] for each in manifest["missing"]}
    assert missing["traces.json"]  # this router has no such service
    assert "of the start before" not in contents["logs/router.log"]


def test_without_any_fleet_what_is_known_here_is_packed(tmp_path: Path, home: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        contents = bundled(tmp_path, home, f"127.0.0.1:{nobody.getsockname()[1]}")
    assert {"versions.json", "environment.json", "options/router.json"} <= contents.keys()
    missing = [each["name"] for each in json.loads(contents["manifest.json"])["missing"]]
    assert {"status.json", "members.json", "router-metrics.txt"} <= set(missing)


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "out.tar.gz").write_text("mine")
    done = cli("support-bundle", "-o", str(tmp_path / "out.tar.gz"), "--no-doctor")
    assert done.returncode == 2 and "is there already" in done.stderr
    assert (tmp_path / "out.tar.gz").read_text() == "mine"


def test_that_the_doctor_looks_as_well_is_said_before_he_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said_before = []

    async def findings() -> object:
        said_before.append(capsys.readouterr().err)
        return []

    monkeypatch.setattr(make, "doctor_part", lambda: BundlePart("doctor.json", findings))
    monkeypatch.setattr(make, "fleet_parts", lambda dialer, router: [])
    make.make_bundle(tmp_path / "out.tar.gz", "nobody:1")
    assert "the doctor looks at this machine" in said_before[0]


def part(name: str, content: object) -> BundlePart:
    async def came() -> object:
        if isinstance(content, BaseException):
            raise content
        return content

    return BundlePart(name, came)


async def never() -> object:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_part_that_fails_or_never_comes_is_missing_and_no_other() -> None:
    archive = Archive(Redactor(["a-known-secret"]))
    parts = [
        part("good.json", {"a": 1}),
        part("bad.json", ValueError("a-known-secret is wrong")),
        BundlePart("late.json", never),
    ]
    await gather(archive, parts, Deadline.after(0.2))
    assert archive.contents.keys() == {"good.json"}
    missing = {each.name: each.why for each in archive.missing}
    assert missing["bad.json"] == "*** is wrong" and "longer than" in missing["late.json"]


def test_a_long_text_keeps_its_end_and_a_full_bundle_takes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 10)
    monkeypatch.setattr(archives, "MAX_BUNDLE_BYTES", 15)
    archive = Archive(Redactor())
    archive.add("long.log", "0123456789the end ")
    archive.add("more.log", "0123456789")
    assert archive.contents == {"long.log": b"89the end "}
    assert [(file.name, file.is_cut) for file in archive.files] == [("long.log", True)]
    assert [each.name for each in archive.missing] == ["more.log"]


def test_the_manifest_has_a_digest_of_every_file(tmp_path: Path) -> None:
    archive = Archive(Redactor())
    archive.add("a.txt", "hello")
    archive.write(tmp_path / "out.tar.gz", {"version": "1"})
    manifest = json.loads(unpacked(tmp_path / "out.tar.gz")["manifest.json"])
    assert manifest["version"] == "1"
    assert manifest["files"][0]["sha256"] == hashlib.sha256(b"hello").hexdigest()


async def test_while_the_doctor_looks_it_is_said_what_is_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    time, may_end = VirtualTime(), asyncio.Event()

    async def looks() -> object:
        await may_end.wait()
        return []

    async def at_once() -> object:
        return {}

    parts = [BundlePart("doctor.json", looks), BundlePart("status.json", at_once)]
    deadline = Deadline.after(120.0, time)
    archive = Archive(Redactor())
    gathering = asyncio.create_task(gather(archive, parts, deadline, time.sleep))
    await time.advance(5.0)
    assert capsys.readouterr().err == ""
    await time.advance(16.0)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("waiting for the doctor, who tries transfers") and "110 s" in first
    assert "100 s at most" in second and "status" not in second
    may_end.set()
    await gathering
    assert set(archive.contents) == {"doctor.json", "status.json"}


def test_without_a_cluster_the_release_is_missing_and_the_rest_is_there(
    tmp_path: Path, home: Path
) -> None:
    path = tmp_path / "out.tar.gz"
    around = PLANTED | {
        "SPLITSERVE_HOME": str(home),
        "KUBECONFIG": str(tmp_path / "none"),
        "HOME": str(tmp_path),
    }
    with running_fleet() as fleet:
        fleet.add("decode-0", "decode")
        asked = ("--no-doctor", "--grpc", fleet.address, "--kubernetes", "chat/llm")
        done = cli("support-bundle", "-o", str(path), *asked, environ=clean_environ(**around))
    assert done.returncode == 0, done.stderr
    assert "release is not in it: no Kubernetes cluster is configured" in done.stderr
