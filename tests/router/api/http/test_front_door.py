"""The outermost layer: what a stranger writes is not repeated at any length."""

from __future__ import annotations

import httpx
import pytest
from structlog.testing import capture_logs

from router.api.http.front_door import MAX_PATH_CHARS
from tests.router.front_fakes import running_front


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_path_without_end_is_logged_and_answered_with_its_beginning(method: str) -> None:
    path = "/" + "x" * 20_000
    with capture_logs() as logs:
        async with running_front() as front, httpx.AsyncClient() as client:
            answer = await client.request(method, front.url + path)
    assert answer.status_code == 404
    assert len(answer.text) < 2 * MAX_PATH_CHARS + 200
    (refused,) = [line for line in logs if line["event"] == "request refused"]
    assert refused["path"] == path[:MAX_PATH_CHARS]
    assert len(refused["message"]) < 2 * MAX_PATH_CHARS
