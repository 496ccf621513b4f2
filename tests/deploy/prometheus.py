"""A real Prometheus, which holds some minutes of what routers and workers show."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.samples import Sample

from tests.fleet.support import wait_for
from tests.free_ports import free_port

SCRAPES = 20
INTERVAL_S = 15
_START_S = 60.0


def program(name: str) -> str:
    """Its path. Skips the test where nobody has it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here; `make test` installs it")
    return found


@dataclass(frozen=True)
class Scraped:
    """One page, and what its pod's series are labelled by."""

    registry: CollectorRegistry
    labels: Mapping[str, str]


class Prometheus:
    """Answers queries about what was scraped, at the time of the last scrape."""

    def __init__(self, address: str, now_s: int) -> None:
        self._address = address
        self._now_s = now_s

    def asked(self, query: str) -> list[dict[str, str]]:
        """The labels of every series of the answer. Fails the test for a query that is none."""
        words = {"query": query, "time": str(self._now_s)}
        answer = httpx.get(
            f"http://{self._address}/api/v1/query", params=words, trust_env=False
        ).json()
        assert answer["status"] == "success", answer
        return [series["metric"] for series in answer["data"]["result"]]


@contextmanager
def prometheus_of(pages: Iterable[Scraped], folder: Path) -> Iterator[Prometheus]:
    """With every counter and histogram growing by what it has, from scrape to scrape."""
    now_s = int(time.time()) - 60
    said, data = folder / "said.txt", folder / "data"
    said.write_text("".join(_pages(pages, now_s)) + "# EOF\n")
    made = [
        program("promtool"),
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(said),
        str(data),
    ]
    subprocess.run(made, check=True, capture_output=True)
    (folder / "none.yml").write_text("scrape_configs: []\n")
    address = f"127.0.0.1:{free_port()}"
    with subprocess.Popen(
        [
            *("setpriv", "--pdeathsig", "KILL"),
            program("prometheus"),
            f"--config.file={folder / 'none.yml'}",
            f"--storage.tsdb.path={data}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address={address}",
            "--log.level=error",
        ]
    ) as process:
        try:
            wait_for(lambda: _is_ready(process, address), timeout_s=_START_S, what="prometheus")
            yield Prometheus(address, now_s)
        finally:
            process.kill()


def _pages(pages: Iterable[Scraped], now_s: int) -> Iterator[str]:
    for page in pages:
        for family in page.registry.collect():
            grows = family.type in ("counter", "histogram")
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    yield from _scrapes(sample, page.labels, now_s, grows=grows)


def _scrapes(
    sample: Sample, labels: Mapping[str, str], now_s: int, *, grows: bool
) -> Iterator[str]:
    pairs = (f'{name}="{value}"' for name, value in ({**sample.labels, **labels}).items())
    series = f"{sample.name}{{{','.join(pairs)}}}"
    for at in range(SCRAPES):
        value = (1 + at) * (sample.value + 1) if grows else sample.value
        yield f"{series} {value} {now_s - (SCRAPES - 1 - at) * INTERVAL_S}\n"


def _is_ready(process: subprocess.Popen[bytes], address: str) -> bool:
    assert process.poll() is None, "prometheus has ended"
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"http://{address}/-/ready", trust_env=False).status_code == 200
    return False
