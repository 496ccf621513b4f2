"""docs/api.md tells of errors what cluster/errors.py has in its table."""

from __future__ import annotations

import re
from pathlib import Path

from cluster import errors
from cluster.errors import from_code, status_of

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
ROW = re.compile(r"^\| (`[a-z_`, ]+`) \| (\d{3}) \| ([A-Z_]+) \|", re.MULTILINE)
AMONG_WORKERS = {"id_taken", "pairing_mismatch", "wrong_token"}
"""No client is told these."""


def listed() -> dict[str, tuple[int, str]]:
    """HTTP and gRPC status by code."""
    return {
        code: (int(http), grpc)
        for codes, http, grpc in ROW.findall(PAGE)
        for code in re.findall(r"\w+", codes)
    }


def test_every_row_says_what_the_table_says() -> None:
    rows = listed()
    assert rows
    for code, row in rows.items():
        status = status_of(from_code(code, ""))
        assert (status.code, status.http, status.grpc) == (code, *row)


def test_every_fault_of_a_client_and_every_wait_has_a_row() -> None:
    told = {row.code for row in errors._TABLE.values() if 400 <= row.http < 500 or row.http == 503}
    assert told - AMONG_WORKERS == {
        code for code, (http, _) in listed().items() if http < 500 or http == 503
    }
