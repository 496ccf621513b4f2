"""The schema of the chart's values, and options in the spelling of values."""

from __future__ import annotations

import json
from pathlib import Path

from cli.chart_schema import chart_options, chart_schema, option_schema
from cluster.config import RouterOptions, WorkerOptions
from cluster.options import option_specs

SCHEMA = Path(__file__).parents[2] / "deploy/helm/splitserve/values.schema.json"


def test_the_file_is_what_the_options_say() -> None:
    assert json.loads(SCHEMA.read_text()) == chart_schema(), (
        f"run python -m cli.chart_schema > {SCHEMA}"
    )


def test_an_option_keeps_its_limits_its_choices_and_its_text() -> None:
    specs = option_specs(WorkerOptions)
    assert option_schema(specs["max_num_seqs"]) == {
        "description": specs["max_num_seqs"].help,
        "type": ["integer", "null"],
        "minimum": 1,
    }
    assert option_schema(specs["kv_transport"])["enum"] == ["nixl", "loopback", None]
    assert option_schema(specs["kv_memory_bytes"])["type"] == ["integer", "string", "null"]


def test_what_the_chart_says_itself_is_no_option_there() -> None:
    assert not {"port", "host", "insecure", "storeUrl"} & chart_options(RouterOptions).keys()
    assert not {"workerId", "router", "role"} & chart_options(WorkerOptions).keys()
    assert {"maxQueuedRequests", "drainTimeoutS"} <= chart_options(RouterOptions).keys()
