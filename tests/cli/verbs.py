"""Every verb of an operator, and what it comes to on each ground that a fleet may stand on.

    local        `splitserve serve`
    ray          `splitserve serve --launcher ray`
    kubernetes   a release of the chart on the mini cluster

A ground has a context of its own: a verb is given no address. Those that change a fleet leave it as
it was, in their order.
"""

from __future__ import annotations

import enum
import json
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from cli.exit_code import ExitCode
from tests.cli.run_cli import ROOT, clean_environ, cli
from tests.fleet.support import wait_for
from tests.free_ports import free_port

REQUEST = "verbs-1"
PROMPT = "Seventeen lanterns hung above the narrow street and " * 8
TIMEOUT_S = 240.0
CONTEXT = "ground"


class Place(enum.StrEnum):
    """Of a ground."""

    LOCAL = "local"
    RAY = "ray"
    KUBERNETES = "kubernetes"


SUPERVISED = (Place.LOCAL, Place.RAY)


@dataclass(frozen=True, slots=True)
class Ground:
    """A fleet of one prefill and one decode worker that has answered REQUEST."""

    place: Place
    environ: Mapping[str, str]
    prefill: str
    decode: str
    folder: Path
    url: str
    """Where clients come."""
    planned: tuple[str, ...]
    """The options by which a planner finds it."""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of whoever uses the ground's context."""
        return cli(*words, environ=dict(self.environ), timeout_s=TIMEOUT_S)

    def named(self, word: str) -> str:
        """With this ground's names."""
        names = {"PREFILL": self.prefill, "DECODE": self.decode, "FOLDER": str(self.folder)}
        names["URL"] = self.url
        return re.sub("|".join(names), lambda found: names[found[0]], word)


@dataclass(frozen=True, slots=True)
class Verb:
    """A command line, what it has to say, and how it has to end."""

    line: str
    says: tuple[str, ...] = ()
    """Patterns, each in what it prints; PREFILL, DECODE, FOLDER and URL are the ground's own."""
    codes: Mapping[Place, ExitCode] = field(default_factory=dict)
    """Where it does not end with OK."""
    said: Mapping[Place, str] = field(default_factory=dict)
    """In place of `says`."""

    @property
    def words(self) -> list[str]:
        """Of its command line."""
        return self.line.split()


_NO_RELEASE = dict.fromkeys(SUPERVISED, ExitCode.USAGE)
_SAYS_NO_RELEASE = dict.fromkeys(SUPERVISED, "no release is named")
VERBS = (
    Verb("status", ("PREFILL", "DECODE", "ready")),
    Verb("status --check", ("PREFILL", "DECODE")),
    Verb("top --once", ("in flight", "LINK MB/S", "interactive")),
    Verb("get workers", ("PREFILL +prefill +ready", "DECODE +decode +ready")),
    Verb("get pools", ("prefill +1/1", "decode +1/1")),
    Verb("get requests", ("in flight; shown",)),
    Verb("get leases", ("WORKER +LEASES|no leases",)),
    Verb("get links", ("PREFILL +DECODE",)),
    Verb("describe worker DECODE", ("member.worker_id +DECODE",)),
    Verb("describe pool prefill", ("PREFILL +ready",)),
    Verb(f"describe request {REQUEST}", (f"{REQUEST}-", "over")),
    Verb("describe request nobody", ("knows a request",), dict.fromkeys(Place, ExitCode.FAILED)),
    Verb("blocks", ("PREFILL", "DECODE", "CACHED")),
    Verb("blocks DECODE --held", ("DECODE",)),
    Verb(f"trace {REQUEST}", ("router.queue", "decode")),
    Verb("trace --slowest 2", ("prompt tokens",)),
    Verb(
        "slow --by pool,worker,tenant",
        ("with a first token", "BY +SLICE", "not enough requests|requests over p"),
    ),
    Verb("cost --price prefill=2.5,decode=2.5", ("POOL +WORKERS", "TENANT", "prefill", "idle: ")),
    Verb(f"explain {REQUEST}", (REQUEST,)),
    Verb("routes hello", ("DECODE",)),
    Verb("events", ("joined +PREFILL", "joined +DECODE")),
    Verb("config show router", ("grpc_port",)),
    Verb("config current-context", (f"context +{CONTEXT}",)),
    Verb("config get-contexts", (rf"\* +{CONTEXT}",)),
    Verb("config validate FOLDER/fleet.toml", ("good",)),
    Verb(
        "config diff FOLDER/fleet.toml",
        ("max_preemptions",),
        dict.fromkeys(Place, ExitCode.FAILED),
    ),
    Verb("config schema router", ("max_preemptions",)),
    Verb("doctor --pairs", ("PREFILL->DECODE: .* verified", "0 failed")),
    Verb("rollout status", ("prefill .* done", "decode .* done"), _NO_RELEASE, _SAYS_NO_RELEASE),
    Verb("rollout status --watch", ("prefill .* done",), _NO_RELEASE, _SAYS_NO_RELEASE),
    Verb("rollout pause --dry-run", ("decode .* on hold",), _NO_RELEASE, _SAYS_NO_RELEASE),
    Verb("rollout pause prefill --yes", ("prefill: on hold",), _NO_RELEASE, _SAYS_NO_RELEASE),
    Verb("rollout resume prefill --yes", ("prefill: goes on",), _NO_RELEASE, _SAYS_NO_RELEASE),
    Verb(
        "rollout undo prefill --yes",
        ("no revision before",),
        _NO_RELEASE | {Place.KUBERNETES: ExitCode.REFUSED},
        _SAYS_NO_RELEASE,
    ),
    Verb("chat --once lanterns --max-tokens 4 --url URL", ("ttft .* DECODE",)),
    Verb("adapters list", ("nothing",)),
    Verb(
        "adapters load poet FOLDER/poet",
        ("DECODE: .*adapter_refused",),
        dict.fromkeys(Place, ExitCode.FAILED),
    ),
    Verb("adapters unload poet", ("DECODE: ",), dict.fromkeys(Place, ExitCode.FAILED)),
    Verb("keys create acme --file FOLDER/keys.json", ("sk-", "acme")),
    Verb("keys list --file FOLDER/keys.json", ("acme",)),
    Verb(
        "keys revoke nobody --file FOLDER/keys.json",
        ("has no key",),
        dict.fromkeys(Place, ExitCode.FAILED),
    ),
    Verb("models list", ("smollm2",)),
    Verb("models show smollm2", ("smollm2",)),
    Verb("completion bash", ("_SPLITSERVE_COMPLETE",)),
    Verb("support-bundle --no-doctor -o FOLDER/bundle.tar.gz", ("secrets are redacted",)),
    Verb("cordon DECODE --yes", ("last_worker",), dict.fromkeys(Place, ExitCode.REFUSED)),
    Verb("cordon PREFILL --yes", ("cordoned",)),
    Verb("uncordon PREFILL", ("takes requests",)),
    Verb("uncordon PREFILL", ("is not held: nothing changes",)),
    Verb("drain PREFILL --yes --wait", ("drained",)),
    Verb("uncordon PREFILL", ("takes requests",)),
    Verb("scale prefill=2 --dry-run", ("prefill +1 +2",)),
    Verb("scale prefill=1 decode=1 --yes --wait", ("ready",)),
    Verb("flip PREFILL decode --dry-run", ("below_one",), dict.fromkeys(Place, ExitCode.REFUSED)),
    Verb("flip PREFILL decode --yes", ("below_one",), dict.fromkeys(Place, ExitCode.REFUSED)),
    Verb("flip nobody decode --yes", ("no_such_worker",), dict.fromkeys(Place, ExitCode.REFUSED)),
    Verb("scale decode=0 --yes", ("below_one",), dict.fromkeys(Place, ExitCode.REFUSED)),
    Verb("scale nobody=2 --yes", ("no_such_pool",), dict.fromkeys(Place, ExitCode.REFUSED)),
)
CHANGES = frozenset({"cordon", "uncordon", "drain"})
"""A worker that is held stays so: these go on from each other."""
ELSEWHERE = {
    "serve": "a ground is one; of a release: tests/cli/test_serve_release.py and "
    "tests/deploy/test_serve_on_kubernetes.py",
    "router": "a process",
    "prefill-worker": "a process",
    "decode-worker": "a process",
    "planner": "a process: check_planner, tried on all grounds",
    "quality": "needs no fleet: tests/cli/test_quality.py",
    "version": "needs no fleet",
    "doctor": "of a machine: tests/cli/doctor",
    "models pull": "needs no fleet: tests/cli/test_models.py",
    "config set-context": "every ground begins with it",
    "config use-context": "every ground begins with it",
    "config delete-context": "tests/cli/config/test_contexts.py",
}
"""Commands that are no verbs of a fleet, and why."""
IDS = [f"{number}-{verb.line.replace(' ', '_')}" for number, verb in enumerate(VERBS)]
"""Of parametrised tests: in their order, and unique."""
every_verb = pytest.mark.parametrize("verb", VERBS, ids=IDS)


def check_verb(ground: Ground, verb: Verb) -> None:
    """Runs it there."""
    done = ground.run(*map(ground.named, verb.words))
    printed = done.stdout + done.stderr
    assert done.returncode == verb.codes.get(ground.place, ExitCode.OK), printed
    assert "Traceback" not in printed
    said = verb.said.get(ground.place)
    for pattern in verb.says if said is None else (said,):
        assert re.search(ground.named(pattern), printed), f"no {pattern!r} in:\n{printed}"


def check_bundle(ground: Ground) -> None:
    """What the bundle's command has packed: nothing of the fleet is missing."""
    with tarfile.open(ground.folder / "bundle.tar.gz") as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
        [manifest] = [name for name in packed.getnames() if name.endswith("manifest.json")]
        file = packed.extractfile(manifest)
        assert file is not None
        missing = json.load(file)["missing"]
    assert missing == []
    assert {"members.json", "traces.json", "router-metrics.txt"} <= names


def check_planner(ground: Ground) -> None:
    """A planner that only says what it would do sees the fleet, and ends well."""
    port = free_port()
    words = ("--pools", "prefill=1..1,decode=1..1", "--dry-run", "--look-interval-s", "0.2")
    command = [sys.executable, "-m", "cli", "planner", *ground.planned, *words]
    command += ["--metrics-port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=dict(ground.environ))
    try:
        wait_for(lambda: _is_ready(port), timeout_s=TIMEOUT_S, what="a planner that sees the fleet")
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()


def check_flip(ground: Ground) -> None:
    """A second prefill worker gives its place to a decode worker; then the pools are as before,
    with whichever decode worker has stayed."""
    assert ground.run("scale", "prefill=2", "--yes", "--wait").returncode == 0
    leaving = wait_for(
        lambda: workers(ground)["prefill"] - {ground.prefill},
        timeout_s=TIMEOUT_S,
        what="a second prefill worker",
    ).pop()
    done = ground.run("flip", leaving, "decode", "--yes", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{leaving} gave its place to a decode worker" in done.stderr
    wait_for(
        lambda: [len(each) for _, each in sorted(workers(ground).items())] == [2, 1],
        timeout_s=TIMEOUT_S,
        what="two decode workers and one that computes prompts",
    )
    assert leaving not in workers(ground)["prefill"]
    assert ground.run("scale", "decode=1", "--yes", "--wait").returncode == 0


def workers(ground: Ground) -> dict[str, set[str]]:
    """Ids of those that take requests, by role."""
    found: dict[str, set[str]] = {"prefill": set(), "decode": set()}
    for each in json.loads(ground.run("get", "workers", "-o", "json").stdout):
        if each["state"] == "ready":
            found[each["member"]["role"]].add(each["member"]["worker_id"])
    return found


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def stand_on(folder: Path, words: tuple[str, ...], **environ: str) -> dict[str, str]:
    """The environment of an operator who has one context, of these words, and uses it."""
    around = clean_environ(**environ) | {"SPLITSERVE_CONTEXTS": str(folder / "contexts.yaml")}
    for line in (("set-context", CONTEXT, *words), ("use-context", CONTEXT)):
        done = cli("config", *line, environ=around)
        assert done.returncode == 0, done.stderr
    (folder / "fleet.toml").write_text("max_preemptions = 0\n")
    return around


def ground_of(
    place: Place,
    folder: Path,
    environ: Mapping[str, str],
    *,
    url: str,
    planned: tuple[str, ...],
) -> Ground:
    """With its workers' names, as it says them itself."""
    done = cli("get", "workers", "-o", "json", environ=dict(environ))
    assert done.returncode == 0, done.stderr
    members = [each["member"] for each in json.loads(done.stdout)]
    names = {each["role"]: each["worker_id"] for each in members}
    return Ground(place, environ, names["prefill"], names["decode"], folder, url, planned)
