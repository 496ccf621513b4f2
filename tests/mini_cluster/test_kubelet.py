"""Pods are processes: told, mounted, probed, restarted and ended as their manifest says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.support import wait_for
from tests.mini_cluster.children import is_ready
from tests.mini_cluster.cluster import MiniCluster
from tests.mini_cluster.history import Object
from tests.mini_cluster.machine import running_cluster

_WITHIN_S = 60.0
_SERVER = """
import http.server, os, pathlib, signal, socketserver, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path != "/ready" or pathlib.Path("/tmp/ready").exists()
        self.send_response(200 if ready else 503)
        self.end_headers()
        self.wfile.write(os.environ["NAME"].encode())
    def log_message(self, *words): pass
signal.signal(signal.SIGTERM, lambda *_: (print("asked to end", flush=True), sys.exit(7)))
server = http.server.ThreadingHTTPServer((os.environ["HOST"], 8000), Page)
print("listening", flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniCluster]:
    """Nodes that run pods."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def create(cluster: MiniCluster, resource: str, kind: str, name: str, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": "default"} | fields.pop("metadata", {})
    made = {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}
    return cluster.call(lambda: cluster.store.create(resource, made))


def python(program: str, **fields: Any) -> Object:
    """A container that runs it."""
    return {"name": "main", "image": "any", "command": [sys.executable, "-c", program], **fields}


def until(cluster: MiniCluster, name: str, holds: Callable[[Object], object]) -> Object:
    """The pod, once that holds."""

    def look() -> Object | None:
        pod = cluster.call(lambda: cluster.store.find("pods", "default", name))
        return pod if pod is not None and holds(pod) else None

    found: Object = wait_for(look, timeout_s=_WITHIN_S, what=name)
    return found


def ended(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def delete(cluster: MiniCluster, name: str) -> None:
    """Returns when it is gone."""
    cluster.call(lambda: cluster.store.delete("pods", "default", name))
    wait_for(
        lambda: cluster.call(lambda: cluster.store.find("pods", "default", name)) is None,
        timeout_s=_WITHIN_S,
        what=f"the end of {name}",
    )


def test_a_container_sees_what_its_manifest_says_and_nothing_that_it_may_write_but_volumes(
    cluster: MiniCluster,
) -> None:
    program = """
import json, os, pathlib, socket
seen = {name: os.environ[name] for name in ("ADDRESS", "SECRET", "BOTH")}
seen["file"] = pathlib.Path("/etc/told/word").read_text()
seen["pid"], seen["host"] = os.getpid(), socket.gethostname()
pathlib.Path("/tmp/new").write_text("x")
try: pathlib.Path("/var/new").write_text("x")
except OSError as error: seen["refused"] = error.strerror
print(json.dumps(seen))
"""
    create(cluster, "secrets", "Secret", "told", data={"word": "c2VzYW1l"})
    env = [
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "told", "key": "word"}}},
        {"name": "BOTH", "value": "$(SECRET) $$(SECRET) $(NOBODY)"},
    ]
    mounts = [{"name": "told", "mountPath": "/etc/told"}, {"name": "tmp", "mountPath": "/tmp"}]
    security = {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    main = python(program, env=env, volumeMounts=mounts, securityContext=security)
    volumes = [{"name": "told", "secret": {"secretName": "told"}}, {"name": "tmp", "emptyDir": {}}]
    spec = {"containers": [main], "volumes": volumes, "restartPolicy": "Never"}
    create(cluster, "pods", "Pod", "told", spec=spec)
    pod = until(cluster, "told", ended)
    assert pod["status"]["phase"] == "Succeeded", cluster.kubectl("logs", "told")
    assert json.loads(cluster.kubectl("logs", "told")) == {
        "ADDRESS": pod["status"]["podIP"],
        "SECRET": "sesame",
        "BOTH": "sesame $(SECRET) $(NOBODY)",
        "file": "sesame",
        "pid": 1,
        "host": "told",
        "refused": "Read-only file system",
    }
    delete(cluster, "told")


def a_server(name: str, **fields: Any) -> Object:
    readiness = {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 1}
    startup = {"tcpSocket": {"port": 8000}, "periodSeconds": 1, "failureThreshold": 60}
    return python(
        _SERVER,
        env=[{"name": "HOST", "value": "0.0.0.0"}, {"name": "NAME", "value": name}],  # noqa: S104
        ports=[{"name": "http", "containerPort": 8000}],
        startupProbe=startup,
        readinessProbe=readiness,
        volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}],
        **fields,
    )


def serve(cluster: MiniCluster, name: str, container: Object, **fields: Any) -> None:
    spec = {"containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}], **fields}
    create(cluster, "pods", "Pod", name, spec=spec, metadata={"labels": {"app": name}})


def test_a_pod_is_ready_when_its_probe_says_so_and_others_find_it_by_its_service_s_name(
    cluster: MiniCluster,
) -> None:
    ports = [{"port": 80, "targetPort": "http"}]
    create(
        cluster, "services", "Service", "page", spec={"selector": {"app": "page"}, "ports": ports}
    )
    init = python("open('/tmp/ready', 'w')", volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}])
    serve(cluster, "page", a_server("page"), initContainers=[init | {"name": "first"}])
    until(cluster, "page", is_ready)
    program = "import urllib.request as r; print(r.urlopen('http://page.default:80/').read())"
    spec = {"containers": [python(program)], "restartPolicy": "OnFailure"}
    create(cluster, "pods", "Pod", "asker", spec=spec)
    until(cluster, "asker", ended)
    assert cluster.kubectl("logs", "asker").splitlines()[-1] == "b'page'"
    delete(cluster, "page")
    delete(cluster, "asker")


def test_a_container_that_fails_comes_again_and_is_counted(cluster: MiniCluster) -> None:
    spec = {"containers": [python("import sys; sys.exit(3)")]}
    create(cluster, "pods", "Pod", "falling", spec=spec)
    pod = until(
        cluster,
        "falling",
        lambda pod: (pod.get("status", {}).get("containerStatuses") or [{}])[0].get("restartCount"),
    )
    (status,) = pod["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 3
    delete(cluster, "falling")


def test_what_lives_no_more_by_its_probe_is_started_again(cluster: MiniCluster) -> None:
    liveness = {
        "exec": {"command": ["false"]},
        "periodSeconds": 1,
        "failureThreshold": 1,
        "timeoutSeconds": 30,
    }
    serve(
        cluster, "dead", a_server("dead", livenessProbe=liveness), terminationGracePeriodSeconds=2
    )
    pod = until(
        cluster,
        "dead",
        lambda pod: (pod.get("status", {}).get("containerStatuses") or [{}])[0].get("restartCount"),
    )
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 7
    assert "liveness probe failed: exit code 1" in cluster.kubectl("logs", "dead")
    delete(cluster, "dead")


def end_of(cluster: MiniCluster, folder: Path, program: str, **spec: Any) -> set[str]:
    """Which files a container leaves that is deleted once it has begun."""
    folder.mkdir()
    hook = {"preStop": {"exec": {"command": ["touch", "/left/heard"]}}}
    mounts = [{"name": "left", "mountPath": "/left"}]
    main = python(program, lifecycle=hook, volumeMounts=mounts)
    volumes = [{"name": "left", "hostPath": {"path": str(folder)}}]
    name = folder.name
    create(cluster, "pods", "Pod", name, spec={"containers": [main], "volumes": volumes} | spec)
    wait_for((folder / "began").exists, timeout_s=_WITHIN_S, what="its start")
    delete(cluster, name)
    return {path.name for path in folder.iterdir()}


def test_at_its_end_a_container_hears_of_it_before_it_is_asked(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    program = """
import os, signal, sys, time
def end(*_):
    open("/left/asked-after" if os.path.exists("/left/heard") else "/left/asked", "w")
    sys.exit()
signal.signal(signal.SIGTERM, end)
open("/left/began", "w")
while True: time.sleep(1)
"""
    left = end_of(cluster, tmp_path / "polite", program, terminationGracePeriodSeconds=60)
    assert left == {"began", "heard", "asked-after"}


def test_who_does_not_end_is_killed_when_the_grace_is_over(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    """Process 1 is deaf to what it has no handler for."""
    deaf = """
import os, time
open("/left/began", "w")
while not os.path.exists("/left/heard"): time.sleep(0.05)
time.sleep(0.5)
open("/left/lived-on", "w")
while True: time.sleep(1)
"""
    left = end_of(cluster, tmp_path / "deaf", deaf, terminationGracePeriodSeconds=4)
    assert left == {"began", "heard", "lived-on"}
