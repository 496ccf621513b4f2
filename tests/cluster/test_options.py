"""Options from flags, environment and file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.common_options import PeerOptions
from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.options import (
    build_options,
    command_line,
    load_options,
    option_specs,
    option_values,
    without_options,
)

ONE_WORKERS = {"kv_events_port", "kv_replay_port", "metrics_port", "role", "router", "worker_id"}


def from_words(cls: type, words: list[str]) -> object:
    """What a process that is started with these words makes of them."""
    flags: dict[str, object] = {}
    for word in words:
        flag, equals, value = word.partition("=")
        negated = flag.startswith("--no-")
        name = flag.removeprefix("--no-" if negated else "--").replace("-", "_")
        flags[name] = value if equals else not negated
    return load_options(cls, flags, environ={})


@pytest.mark.parametrize("cls", [RouterOptions, WorkerOptions, ServeOptions])
def test_without_any_source_every_option_has_its_default(cls: type) -> None:
    assert load_options(cls, environ={}) == cls()


@pytest.mark.parametrize("cls", [RouterOptions, WorkerOptions, ServeOptions])
def test_every_option_has_help_and_a_default_within_its_own_limits(cls: type) -> None:
    for name, spec in option_specs(cls).items():
        assert spec.help, name
        assert spec.parse(spec.default, source=name) == spec.default


def test_options_survive_the_way_through_a_command_line() -> None:
    options = load_options(
        WorkerOptions,
        {
            "role": "prefill",
            "worker_id": "prefill-0",
            "kv_memory_bytes": "2GiB",
            "prefix_cache": False,
            "max_num_seqs": "7",
            "drain_timeout_s": "1.5",
            "model": "hf://owner/name@main",
        },
        environ={},
    )
    assert options.engine.kv_memory_bytes == 2 * 2**30
    assert options.role is Role.PREFILL
    assert from_words(WorkerOptions, command_line(options)) == options


@settings(deadline=None)  # the machine may be busy
@given(
    port=st.integers(0, 65_535),
    threads=st.none() | st.integers(1, 512),
    cache=st.booleans(),
    drain=st.floats(0, 1e6),
    model=st.text(min_size=1).filter(str.isprintable),
)
def test_any_values_survive_the_way_through_a_command_line(
    port: int, threads: int | None, cache: bool, drain: float, model: str
) -> None:
    values = {
        "port": port,
        "num_threads": threads,
        "prefix_cache": cache,
        "drain_timeout_s": drain,
        "model": model,
    }
    options = build_options(WorkerOptions, values)
    assert from_words(WorkerOptions, command_line(options)) == options
    assert option_values(options).items() >= values.items()


def test_one_flag_feeds_every_place_where_the_name_occurs() -> None:
    options = load_options(ServeOptions, {"model": "other"}, environ={})
    assert options.model.model == options.router.model.model == "other"


def test_a_flag_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("port = 1\ngrpc_port = 1\nmax_running_requests = 1\nprefix_cache = false\n")
    environ = {"SPLITSERVE_PORT": "2", "SPLITSERVE_GRPC_PORT": "2", "HOME": "/root"}
    options = load_options(RouterOptions, {"port": "3"}, environ=environ, config_file=file)
    assert (options.port, options.grpc_port, options.max_running_requests) == (3, 2, 1)


def test_an_unknown_variable_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"SPLITSERVE_PROT .*did you mean SPLITSERVE_PORT\?"):
        load_options(RouterOptions, environ={"SPLITSERVE_PROT": "1"})


def test_a_variable_of_another_process_of_the_fleet_is_no_error() -> None:
    environ = {"SPLITSERVE_MAX_NUM_SEQS": "3", "SPLITSERVE_HOME": "/data"}
    assert load_options(RouterOptions, environ=environ) == RouterOptions()


@pytest.mark.parametrize("name", sorted(ONE_WORKERS))
def test_what_belongs_to_one_worker_is_refused_by_a_whole_fleet(name: str, tmp_path: Path) -> None:
    spec = option_specs(WorkerOptions)[name]
    with pytest.raises(ConfigError, match=f"{spec.variable} is an option of one worker") as refused:
        load_options(ServeOptions, environ={spec.variable: "1"})
    assert refused.value.param == name
    file = tmp_path / "fleet.toml"
    file.write_text(f"{name} = 1\n")
    with pytest.raises(ConfigError, match=f"fleet.toml:1: {name} is an option of one worker"):
        load_options(ServeOptions, environ={}, config_file=file)
    assert load_options(RouterOptions, environ={spec.variable: "1"}, config_file=file)


def test_what_holds_between_all_workers_is_an_option_of_a_whole_fleet(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('advertise_host = "10.0.0.7"\n')
    environ = {"SPLITSERVE_PREFILL_PROGRESS_TIMEOUT_S": "10"}
    options = load_options(
        ServeOptions, {"kv_transport": "loopback"}, environ=environ, config_file=file
    )
    assert options.peers == PeerOptions(
        advertise_host="10.0.0.7", kv_transport="loopback", prefill_progress_timeout_s=10.0
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SPLITSERVE_SERVICE_HOST", "10.0.0.1"),
        ("SPLITSERVE_SERVICE_PORT_HTTP", "8000"),
        ("SPLITSERVE_PORT", "tcp://10.0.0.1:8000"),
        ("SPLITSERVE_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("SPLITSERVE_ROUTER_PORT", "tcp://10.0.0.1:50051"),
    ],
)
def test_variables_that_kubernetes_adds_for_a_service_are_not_options(
    variable: str, value: str
) -> None:
    assert load_options(RouterOptions, environ={variable: value}) == RouterOptions()


def test_an_unknown_key_in_a_file_is_an_error_that_names_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("max_num_seq = 4\n")
    with pytest.raises(ConfigError, match=r"fleet.toml:1: max_num_seq .*mean max_num_seqs\?"):
        load_options(WorkerOptions, environ={}, config_file=file)


@pytest.mark.parametrize("text", ["port = ", "\x00", "port = 1\nport = 2\n"])
def test_a_file_that_is_not_toml_is_a_config_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not TOML"):
        load_options(RouterOptions, environ={}, config_file=file)


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_options(RouterOptions, environ={}, config_file=tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("name", "raw", "message"),
    [
        ("port", "70000", r"--port is '70000'; allowed: 0 to 65535"),
        ("port", "80a", r"--port is '80a'; allowed: a whole number"),
        ("max_num_seqs", "0", r"--max-num-seqs is '0'; allowed: 1 or more"),
        ("dtype", "float8", r"--dtype is 'float8'; allowed: one of auto, float32, bfloat16"),
        ("role", "both", r"--role is 'both'; allowed: prefill, decode"),
        ("kv_memory_bytes", "2 parsecs", r"allowed: bytes, or a size such as 512MiB"),
        ("kv_memory_bytes", "0", r"allowed: 1 or more"),
        ("prefix_cache", "perhaps", r"allowed: true or false"),
        ("drain_timeout_s", "nan", r"--drain-timeout-s is 'nan'; allowed: 0 or more"),
        ("drain_timeout_s", "soon", r"allowed: a number"),
        ("model", "", r"allowed: some text"),
        ("max_num_seqs", True, r"allowed: a whole number"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(
    name: str, raw: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_options(WorkerOptions, {name: raw}, environ={})
    assert caught.value.param == name


@pytest.mark.parametrize("raw", ["none", "auto", "", None])
def test_an_optional_option_can_be_given_back_to_its_automatic_value(raw: str | None) -> None:
    options = load_options(
        WorkerOptions, {"num_threads": raw}, environ={"SPLITSERVE_NUM_THREADS": "2"}
    )
    assert options.engine.num_threads is None


def test_a_child_that_gets_words_gets_no_options_by_variable() -> None:
    environ = {"SPLITSERVE_PORT": "9", "SPLITSERVE_CONFIG": "/fleet.toml"}
    environ |= {"SPLITSERVE_HOME": "/data", "PATH": "/bin"}
    assert without_options(environ) == {"SPLITSERVE_HOME": "/data", "PATH": "/bin"}


@pytest.mark.parametrize("host", ["::", "::1", "[::1]", "10.0.0.7:50051"])
@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (ServeOptions, "host"),
        (RouterOptions, "host"),
        (WorkerOptions, "host"),
        (WorkerOptions, "advertise_host"),
    ],
)
def test_a_host_that_no_worker_could_listen_on_is_refused_where_it_is_named(
    cls: type, name: str, host: str
) -> None:
    with pytest.raises(ConfigError, match="IPv4 address.*IPv6 is not supported yet") as refused:
        load_options(cls, {name: host}, environ={})
    assert refused.value.param == name
    assert load_options(cls, {name: "0.0.0.0"}, environ={})


@pytest.mark.parametrize("cls", [RouterOptions, ServeOptions])
def test_a_port_that_is_to_have_two_uses_is_refused(cls: type) -> None:
    with pytest.raises(ConfigError, match="--grpc-port and --fleet-port are both 7000") as refused:
        load_options(cls, {"grpc_port": "7000", "fleet_port": "7000"}, environ={})
    assert refused.value.param == "fleet_port"
    assert load_options(cls, {"port": "0", "grpc_port": "0"}, environ={})
