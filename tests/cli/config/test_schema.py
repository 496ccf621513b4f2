"""The schema and the program are of one mind, whatever a file says."""

from __future__ import annotations

import functools
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.config.roles import ProcessKind
from cli.config.schema import at_least, config_schema
from cli.config.validated import _problems
from cli.main import app
from cluster.options import known_specs

KINDS = [*ProcessKind, None]
SPECS = known_specs()
WORDS = ["", "none", "None", "AUTO", "auto", "on", "true", "1", "0", "-1", "store", "a:1", "a\n"]
SIZES = st.tuples(
    st.sampled_from(["", " ", "\t", "0", "+", "1_"]),
    st.integers(0, 2**42).map(str),
    st.sampled_from(["", "B", "b", "KiB", "mib", "GIB", " TiB", "K", "kb", " ", "\n", "MiB\n"]),
).map("".join)


def values(name: str) -> st.SearchStrategy[Any]:
    """Near what the option takes, and anything else."""
    spec = SPECS[name]
    limits = [
        each for each in (spec.low, spec.high, spec.default) if isinstance(each, (int, float))
    ]
    near = [limit + step for limit in limits for step in (-1, -0.5, 0, 0.5, 1)]
    members = list(spec.choices) or ["prefill", "decode"]
    return st.one_of(
        st.sampled_from([*members, *WORDS, *near, *(int(each) for each in near)]),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        SIZES if spec.is_size else st.nothing(),
        st.just([1]),
        st.just({"a": 1}),
    )


@functools.cache
def validator_of(kind: ProcessKind | None) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(config_schema(kind))


def in_toml(value: Any) -> str:
    """As TOML: JSON, but for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {in_toml(item)}" for key, item in value.items()) + "}"
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")


def refusals(kind: ProcessKind | None, document: dict[str, Any], folder: Path) -> list[str]:
    """What the program says."""
    file = folder / "fleet.toml"
    lines = [f"{json.dumps(name)} = {in_toml(value)}\n" for name, value in document.items()]
    file.write_text("".join(lines), encoding="utf-8")
    problems = [problem.message for problem in _problems(file, kind)]
    assert not any("is not TOML" in problem for problem in problems), problems
    return problems


@pytest.mark.parametrize("kind", KINDS)
@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)  # the machine may be busy
@given(data=st.data())
def test_the_schema_accepts_what_the_program_accepts_and_nothing_else(
    kind: ProcessKind | None, data: st.DataObject
) -> None:
    names = data.draw(
        st.lists(st.sampled_from([*SPECS, "tls_cert", "tls_key", "api_keys"]), max_size=3)
    )
    document = {name: data.draw(values(name), label=name) for name in names}
    assume(
        all(char < "\ud800" or char > "\udfff" for char in json.dumps(document, ensure_ascii=False))
    )
    validator = jsonschema.Draft202012Validator(config_schema(kind))
    with tempfile.TemporaryDirectory() as folder:
        refused = refusals(kind, document, Path(folder))
        assume(not any("are both" in each for each in refused))  # two ports: no words for that
        assert validator.is_valid(document) == (not refused), refused


@pytest.mark.parametrize(
    "document",
    [
        {"ext_proc_port": 9002},
        {"ext_proc_port": 9002, "vllm": "http://a:1"},
        {"ext_proc_port": "none"},
        {"ext_proc_port": 9002, "vllm": "none"},
    ],
)
def test_a_gateway_s_port_needs_servers_by_both(document: dict[str, Any], tmp_path: Path) -> None:
    kind = ProcessKind.ROUTER
    assert validator_of(kind).is_valid(document) == (not refusals(kind, document, tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_schema_and_takes_every_default(kind: ProcessKind | None, tmp_path: Path) -> None:
    schema = config_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    defaults = {
        name: each["default"] for name, each in schema["properties"].items() if "default" in each
    }
    assert len(defaults) > 10
    assert jsonschema.Draft202012Validator(schema).is_valid(defaults)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["no_such_option", "Port", "engine", "port "])
def test_a_key_that_nobody_knows_is_refused_by_both(
    kind: ProcessKind | None, name: str, tmp_path: Path
) -> None:
    assert not validator_of(kind).is_valid({name: 1})
    assert refusals(kind, {name: 1}, tmp_path)


@pytest.mark.parametrize("name", list(SPECS))
def test_each_option_at_its_limits_alone(name: str, tmp_path: Path) -> None:
    """What a search at random may pass over. Rules over several options are above."""
    spec = SPECS[name]
    tried: list[Any] = [*spec.choices, True, "none", "", "a\n"]
    if spec.is_size:
        tried += ["1KiB", "1MiB", "1048575", "1023KiB", "1024 kib", "1MiB\n", "0TiB", "1_0"]
    for limit in (spec.low, spec.high):
        tried += [] if limit is None else [limit, limit - 1, limit + 1, int(limit) + 0.5]
    of_several = name in ("tls_cert", "tls_key", "tls_client_ca", "api_keys") or "port" in name
    for value in () if of_several else tried:
        document = {name: value}
        refused = refusals(None, document, tmp_path)
        assert validator_of(None).is_valid(document) == (not refused), (value, refused)


@settings(deadline=None)
@given(low=st.integers(0, 10**7), number=st.integers(0, 10**8), zeros=st.integers(0, 3))
def test_a_pattern_of_numbers_from_a_limit_on(low: int, number: int, zeros: int) -> None:
    found = re.fullmatch(at_least(low), "0" * zeros + str(number))
    assert (found is not None) == (number >= low)


def test_the_command_prints_it() -> None:
    done = CliRunner().invoke(app, ["config", "schema", "router"])
    assert done.exit_code == 0 and json.loads(done.stdout) == config_schema(ProcessKind.ROUTER)
