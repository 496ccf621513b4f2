"""An API server of one Deployment that knows some logins, and a kubeconfig with a plugin."""

from __future__ import annotations

import json
import ssl
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from kubernetes.aio.config import kube_config

from tests.cluster.scaling.played_kubernetes import deployment

_POOLS = "/apis/apps/v1/namespaces/chat/deployments"
_PLUGIN = """#!{python}
import json, pathlib
folder = pathlib.Path({folder!r})
with (folder / "runs").open("a") as runs:
    runs.write("run\\n")
said = json.loads((folder / "says").read_text())
if said is None:
    raise SystemExit("the session is over: log in")
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": said}}))
"""


class TokenServer:
    """Of the pool `decode` in the namespace `chat`."""

    def __init__(self) -> None:
        self.known = {"first"}
        """Tokens of which it knows whose they are, and common names of certificates, where it asks
        for any; 401 to all others, and 403 to who shows nothing."""
        self.item = deployment("decode", 3)
        self.item["spec"]["template"]["spec"]["containers"][0]["name"] = "worker"
        self.asked: list[tuple[str, str]] = []
        """Verb and token, in their order."""
        self.patched: list[int] = []
        self.port = 0
        self.get_ready()

    def get_ready(self) -> None:
        wanted = self.item["spec"]["replicas"]
        self.item["status"] = {"replicas": wanted, "readyReplicas": wanted}

    def answer(self, verb: str, path: str, token: str, body: Any) -> tuple[int, Any]:
        self.asked.append((verb, token))
        if not token:
            words = f'User "system:anonymous" cannot {verb.lower()} resource "deployments"'
            message = f"deployments.apps is forbidden: {words}"
            return 403, {"kind": "Status", "message": message}
        if token not in self.known:
            return 401, {"kind": "Status", "message": "Unauthorized"}
        if verb == "GET" and path == _POOLS:
            return 200, {"kind": "DeploymentList", "apiVersion": "apps/v1", "items": [self.item]}
        if verb == "PATCH" and path == f"{_POOLS}/chat-decode/scale":
            self.patched.append(body["spec"]["replicas"])
            self.item["spec"]["replicas"] = body["spec"]["replicas"]
            return 200, {"kind": "Scale", "apiVersion": "autoscaling/v1"}
        return 404, {"kind": "Status", "message": f"no {path}"}


class LoginPlugin:
    """What `aws eks get-token` and its like are to a kubeconfig."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "plugin"
        self.path.write_text(_PLUGIN.format(python=sys.executable, folder=str(folder)))
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def gives(self, token: str | None, **more: str) -> None:
        """None: it fails."""
        self.says(None if token is None else {"token": token, **more})

    def says(self, status: dict[str, str] | None) -> None:
        """Whatever it is; None: it fails."""
        (self._folder / "says").write_text(json.dumps(status))

    @property
    def num_runs(self) -> int:
        runs = self._folder / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0


@contextmanager
def token_server(authority: trustme.CA | None = None) -> Iterator[TokenServer]:
    """With an authority by TLS; it asks for certificates of that authority, and needs none."""
    played = TokenServer()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            _, _, token = (self.headers["Authorization"] or "").partition(" ")
            token = token or self._common_name()
            path = self.path.partition("?")[0]
            asked = json.loads(body) if body else None
            status, answer = played.answer(self.command, path, token, asked)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_PATCH = do_GET

        def _common_name(self) -> str:
            if not isinstance(self.connection, ssl.SSLSocket):
                return ""
            subject = (self.connection.getpeercert() or {}).get("subject", ())
            return dict(pair for (pair,) in subject).get("commonName", "")

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    if authority is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_OPTIONAL
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    played.port = server.server_address[1]
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_kubeconfig(
    place: Path, port: int, user: Any, *, current: str = "managed", authority: Path | None = None
) -> None:
    """Of two clusters: the one at `port`, by TLS where there is an authority, and one where nobody
    is."""
    scheme = "http" if authority is None else "https"
    clusters = {"managed": f"{scheme}://127.0.0.1:{port}", "other": "http://127.0.0.1:1"}
    trust = {} if authority is None else {"certificate-authority": str(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name}} for name in clusters
        ],
        "clusters": [
            {"name": name, "cluster": {"server": url} | trust} for name, url in clusters.items()
        ],
        "users": [{"name": "managed", "user": user}, {"name": "other", "user": {"token": "their"}}],
    }
    place.write_text(yaml.safe_dump(config))


def by_plugin(plugin: LoginPlugin) -> Any:
    """A user of a kubeconfig."""
    version = "client.authentication.k8s.io/v1"
    terms = {"apiVersion": version, "command": str(plugin.path), "interactiveMode": "Never"}
    return {"exec": terms}


def is_kubeconfig(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if KUBECONFIG had named it when this process began."""
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(place))
    monkeypatch.setattr("kubernetes.aio.config.KUBE_CONFIG_DEFAULT_LOCATION", str(place))
