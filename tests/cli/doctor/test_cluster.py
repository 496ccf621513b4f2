"""What a pod sees: an account with rights or without, a name, and routers behind it."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trustme

from cli.doctor.cluster import DEEDS, cluster_checks
from cli.doctor.finding import Finding, Verdict
from cluster.join_token import JOIN_TOKEN
from tests.cli.test_status import running_fleet

AUTHORITY = trustme.CA()


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPLITSERVE_HOME", str(tmp_path / "home"))
    for name in (JOIN_TOKEN, "SPLITSERVE_FLEET_TLS"):
        monkeypatch.delenv(name, raising=False)


def findings(router: str, account: Path) -> dict[str, Finding]:
    return {check.name: check.look() for check in cluster_checks(router, account)}


@contextmanager
def api_server(allowed: set[str], token: str) -> Iterator[int]:
    """Answers what it is asked about rights, to whoever has the token; its port."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            deed = asked["spec"]["resourceAttributes"]
            name = "/".join(filter(None, (deed["resource"], deed["subresource"])))
            is_known = self.headers["Authorization"] == f"Bearer {token}"
            self.send_response(201 if is_known else 401)
            self.end_headers()
            answer = {"status": {"allowed": f"{deed['verb']} {name}" in allowed}}
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    server = HTTPServer(("127.0.0.1", 0), Answer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def account_in(folder: Path, token: str) -> Path:
    folder.mkdir()
    (folder / "token").write_text(token)
    (folder / "namespace").write_text("llm")
    AUTHORITY.cert_pem.write_to_path(str(folder / "ca.crt"))
    return folder


def test_without_an_account_nothing_is_asked_and_routers_are(tmp_path: Path) -> None:
    with running_fleet() as fleet:
        fleet.add("decode-0", "decode")
        found = findings(fleet.address.replace("127.0.0.1", "localhost"), tmp_path)
    assert list(found) == ["account", "dns", "routers"]
    assert {each.verdict for each in found.values()} == {Verdict.OK}
    assert "localhost is 127.0.0.1" in found["dns"].text
    assert "has 1 of 1 workers ready" in found["routers"].text


def test_a_name_that_nobody_knows_and_a_router_that_is_away_are_failures(tmp_path: Path) -> None:
    found = findings("no-such-name.invalid:1", tmp_path)
    assert found["dns"].verdict is Verdict.FAIL and "no-such-name.invalid" in found["dns"].text
    away = findings("127.0.0.1:1", tmp_path)["routers"]
    assert away.verdict is Verdict.FAIL and "127.0.0.1:1 does not answer" in away.text
    assert away.hint


def test_each_right_is_asked_for_and_one_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = account_in(tmp_path / "account", "secret-token")
    allowed = {deed.name for deed in DEEDS} - {"patch deployments/scale"}
    with api_server(allowed, "secret-token") as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        found = findings("127.0.0.1:1", account)
        (account / "token").write_text("expired-token")
        refused = findings("127.0.0.1:1", account)
    rights = {name: each for name, each in found.items() if name.startswith("rbac ")}
    assert len(rights) == len(DEEDS)
    (missing,) = [each for each in rights.values() if each.verdict is not Verdict.OK]
    assert missing.verdict is Verdict.WARN and "may not patch deployments/scale" in missing.text
    assert "splitserve scale" in missing.hint and "verb patch on deployments/scale" in missing.hint
    assert refused["rbac list pods"].verdict is Verdict.FAIL
    assert "401" in refused["rbac list pods"].text


def test_an_account_whose_token_is_empty_is_a_failure(tmp_path: Path) -> None:
    account = account_in(tmp_path / "account", "")
    assert findings("127.0.0.1:1", account)["account"].verdict is Verdict.FAIL
