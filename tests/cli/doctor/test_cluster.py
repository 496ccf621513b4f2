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

from cli.doctor.cluster import cluster_checks
from cli.doctor.finding import Finding, Verdict
from cli.doctor.rights import DEEDS, deeds_of
from cluster.join_token import JOIN_TOKEN
from tests.cli.test_status import running_fleet

AUTHORITY = trustme.CA()
OF_PODS = ("SPLITSERVE_KUBERNETES", "SPLITSERVE_POOLS", "SPLITSERVE_VLLM")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPLITSERVE_HOME", str(tmp_path / "home"))
    for name in (JOIN_TOKEN, "SPLITSERVE_FLEET_TLS", *OF_PODS):
        monkeypatch.delenv(name, raising=False)


def findings(router: str, account: Path) -> dict[str, Finding]:
    return {check.name: check.look() for check in cluster_checks(router, account)}


@contextmanager
def api_server(allowed: set[str], token: str) -> Iterator[int]:
    """Answers what it is asked about rights, to whoever has the token; its port. A deed is allowed
    as it is asked for: "list pods" of the namespace llm and of all, "list pods vllm" of another,
    "patch deployments/scale of llm-decode" of that name alone."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            deed = asked["spec"]["resourceAttributes"]
            name = "/".join(filter(None, (deed["resource"], deed["subresource"])))
            is_known = self.headers["Authorization"] == f"Bearer {token}"
            self.send_response(201 if is_known else 401)
            self.end_headers()
            place = deed["namespace"] if deed["namespace"] != "llm" else ""
            words = (deed["verb"], name, deed["name"] and f"of {deed['name']}", place)
            answer = {"status": {"allowed": " ".join(filter(None, words)) in allowed}}
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


PLANNERS = {
    "list deployments",
    "list limitranges",
    "list resourcequotas",
    "list poddisruptionbudgets",
    "patch deployments/scale of chat-decode",
    "list leaderworkersets",
    "patch leaderworkersets/scale of chat-prefill",
}
"""As the chart's Role grants it where prefill has several hosts a worker."""
NOT_LOOKED_AT = {"list limitranges", "list resourcequotas", "list poddisruptionbudgets"}
"""Without one of these a planner goes on, and judges less."""


def rights_of(account: Path, allowed: set[str], monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    with api_server(allowed, "secret-token") as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        found = findings("127.0.0.1:1", account)
    return [each for name, each in found.items() if name.startswith("rbac ")]


def test_a_planner_is_asked_for_what_it_needs_by_the_names_that_its_role_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = account_in(tmp_path / "account", "secret-token")
    monkeypatch.setenv("SPLITSERVE_KUBERNETES", "llm/chat")
    monkeypatch.setenv("SPLITSERVE_POOLS", "decode=1..16,prefill=1..8")
    found = rights_of(account, PLANNERS, monkeypatch)
    assert {each.verdict for each in found} == {Verdict.OK}
    texts = [each.text for each in found]
    assert "may patch deployments/scale of chat-decode in llm" in texts
    assert any(
        "list nodes everywhere: what nodes have free is not looked" in each for each in texts
    )
    for right in PLANNERS:
        (missing,) = (
            each
            for each in rights_of(account, PLANNERS - {right}, monkeypatch)
            if each.verdict is not Verdict.OK
        )
        if right in NOT_LOOKED_AT:
            assert missing.verdict is Verdict.WARN and "the planner would need it" in missing.hint
        else:
            assert missing.verdict is Verdict.FAIL and "the planner does nothing" in missing.hint
        verb, resource, *_ = right.split()
        assert verb in missing.hint and resource in missing.hint


def test_a_planner_whose_pool_is_a_deployment_needs_no_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = account_in(tmp_path / "account", "secret-token")
    monkeypatch.setenv("SPLITSERVE_KUBERNETES", "llm/chat")
    monkeypatch.setenv("SPLITSERVE_POOLS", "decode=1..16")
    allowed = {right for right in PLANNERS if "leaderworkersets" not in right}
    assert {each.verdict for each in rights_of(account, allowed, monkeypatch)} == {Verdict.OK}


def test_a_router_is_asked_for_pods_of_the_namespace_where_its_vllm_servers_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = account_in(tmp_path / "account", "secret-token")
    monkeypatch.setenv("SPLITSERVE_VLLM", "kubernetes://engines/app=vllm?port=8000")
    theirs = rights_of(account, {"list pods engines", "watch pods engines"}, monkeypatch)
    assert [each.verdict for each in theirs] == [Verdict.OK] * 2
    ours = rights_of(account, {"list pods", "watch pods"}, monkeypatch)
    assert [each.verdict for each in ours] == [Verdict.FAIL] * 2
    assert "may not list pods in engines" in ours[0].text and "verb list on pods" in ours[0].hint


def test_servers_that_are_named_need_no_right_and_leave_the_deeds_of_commands() -> None:
    assert deeds_of({"SPLITSERVE_VLLM": "http://a:8000"}) == deeds_of({}) == DEEDS


def test_an_account_whose_token_is_empty_is_a_failure(tmp_path: Path) -> None:
    account = account_in(tmp_path / "account", "")
    assert findings("127.0.0.1:1", account)["account"].verdict is Verdict.FAIL
