"""Which processes a fleet has, its ports and its share of the cores."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from cluster.config import RouterOptions, ServeOptions
from cluster.errors import ConfigError
from cluster.identity import Role
from cluster.launcher.protocol import NodeFacts
from cluster.options import load_options
from cluster.process.cgroup import Cgroups
from cluster.process.own_cores import available_cores
from cluster.supervisor.cores import share_cores
from cluster.supervisor.devices import NvidiaHost, visible_gpus
from cluster.supervisor.fleet import (
    Machine,
    num_ranks_of_all,
    plan_fleet,
    warning_of_shared_gpus,
)
from cluster.supervisor.ports import PortClaims, claimed_port
from tests.free_ports import free_port


def planned(**flags: object) -> dict[str, tuple[str, ...]]:
    """The words after `python -P -m cli`, by process name."""
    stages = plan_fleet(load_options(ServeOptions, flags, environ={}), Machine(8))
    return {spec.name: spec.argv[4:] for stage in stages for spec in stage}


def test_the_router_comes_first_and_workers_are_numbered_by_pool() -> None:
    options = load_options(ServeOptions, {"prefill": "2", "decode": "1"}, environ={})
    stages = plan_fleet(options, Machine(4))
    names = [[spec.name for spec in stage] for stage in stages]
    assert names == [["router"], ["prefill-0", "prefill-1", "decode-0"]]


def test_a_deployment_without_prefill_workers_is_one_router_and_decode_workers() -> None:
    assert list(planned(prefill="0")) == ["router", "decode-0"]


def test_workers_join_at_the_port_that_clients_do_not_reach_where_there_is_one() -> None:
    words = planned(grpc_port="7000", fleet_port="7001")
    assert {"--grpc-port=7000", "--fleet-port=7001"} <= set(words["router"])
    assert "--router=127.0.0.1:7001" in words["decode-0"]


def test_the_stores_password_is_in_no_command_line_and_the_router_has_it() -> None:
    url = "redis://:s3cret@here"
    options = load_options(ServeOptions, {"store": url, "store_namespace": "a"}, environ={})
    specs = [spec for stage in plan_fleet(options, Machine(4)) for spec in stage]
    assert not [spec for spec in specs if "s3cret" in " ".join(spec.argv)]
    router = specs[0]
    assert "--store-namespace=a" in router.argv
    assert load_options(RouterOptions, environ=dict(router.environ)).store.store == url


def test_workers_get_the_model_the_engine_options_and_the_routers_address() -> None:
    words = planned(model="m", dtype="float32", grpc_port="7000", max_num_seqs="3")["prefill-0"]
    assert words[0] == "prefill-worker"
    assert set(words[1:]) == {
        "--worker-id=prefill-0",
        "--router=127.0.0.1:7000",
        "--model=m",
        "--dtype=float32",
        "--max-num-seqs=3",
        "--num-threads=8",
        "--niceness=2",
        "--memory-share=0.5",
    }


def test_each_pool_may_have_its_own_number_of_ranks() -> None:
    words = planned(tensor_parallel_size="3", decode_tensor_parallel_size="2")
    assert "--tensor-parallel-size=3" in words["prefill-0"]
    assert "--tensor-parallel-size=2" in words["decode-0"]
    assert not [word for word in planned()["decode-0"] if "parallel" in word]


def test_each_pool_may_have_its_own_way_to_other_ranks_experts() -> None:
    words = planned(expert_exchange="gather", prefill_expert_exchange="all-to-all")
    assert "--expert-exchange=all-to-all" in words["prefill-0"]
    assert "--expert-exchange=gather" in words["decode-0"]


def test_each_pool_may_have_attention_of_its_own() -> None:
    words = planned(
        tensor_parallel_size="2",
        data_parallel_attention="true",
        prefill_data_parallel_attention="false",
    )
    assert "--data-parallel-attention" in words["decode-0"]
    assert "--data-parallel-attention" not in words["prefill-0"]


def test_workers_of_one_rank_have_no_attention_by_rank_and_are_told_how_others_have_it() -> None:
    ranks = {"decode_tensor_parallel_size": "8"}
    with pytest.raises(ConfigError, match="prefill worker is one rank.*--decode-data-parallel-att"):
        planned(data_parallel_attention="true", **ranks)
    assert planned(decode_data_parallel_attention="true", **ranks)
    assert planned(data_parallel_attention="true", prefill="0", **ranks)


def test_a_pool_may_have_ranks_and_blocks_of_its_own() -> None:
    words = planned(
        tensor_parallel_size="2",
        block_size_tokens="32",
        decode_tensor_parallel_size="3",
        prefill_block_size_tokens="64",
    )
    assert {"--tensor-parallel-size=2", "--block-size-tokens=64"} <= set(words["prefill-0"])
    assert {"--tensor-parallel-size=3", "--block-size-tokens=32"} <= set(words["decode-0"])


def test_spare_workers_are_of_their_pool_and_all_of_it_wait_to_be_promoted() -> None:
    words = planned(prefill="1", decode="2", warm_spares="1", prefill_warm_spares="0")
    assert list(words) == ["router", "prefill-0", "decode-0", "decode-1", "decode-2"]
    assert [name for name, argv in words.items() if "--spare" in argv] == [
        *("decode-0", "decode-1", "decode-2")
    ]
    assert list(planned(prefill="0", warm_spares="1")) == ["router", "decode-0", "decode-1"]


def test_a_spare_has_memory_and_gpus_of_its_own_and_no_share_of_the_cores() -> None:
    flags = {"prefill": "0", "tensor_parallel_size": "2", "warm_spares": "1"}
    options = load_options(ServeOptions, flags, environ={})
    _, workers = plan_fleet(options, Machine(8))
    assert all({"--num-threads=8", "--memory-share=0.5"} <= set(spec.argv) for spec in workers)
    _, workers = plan_fleet(options, Machine(8, ("0", "1", "2", "3")))
    assert [spec.environ["CUDA_VISIBLE_DEVICES"] for spec in workers] == ["0,1", "2,3"]
    assert [spec.ranks for spec in workers] == [2, 2] and num_ranks_of_all(options) == 4
    assert not any(word.startswith("--memory-share") for spec in workers for word in spec.argv)
    warning = warning_of_shared_gpus(options, Machine(8, ("0", "1")))
    assert warning is not None and "--warm-spares 0 gives each rank" in warning


def test_the_router_gets_its_own_options_and_the_model() -> None:
    words = planned(port="9000", model="m", index_max_blocks="5")["router"]
    assert words == ("router", "--port=9000", "--index-max-blocks=5", "--model=m")


def test_a_router_on_all_addresses_is_reached_by_its_workers_over_loopback() -> None:
    words = planned(host="0.0.0.0")
    assert "--host=0.0.0.0" in words["router"]
    assert "--router=127.0.0.1:50051" in words["decode-0"]


def test_what_holds_between_all_workers_reaches_each_of_them() -> None:
    named = {"prefill_progress_timeout_s": "10", "kv_transport": "loopback"}
    every = planned(host="0.0.0.0", advertise_host="10.0.0.7", **named)
    for worker in ("prefill-0", "decode-0"):
        assert {
            "--host=0.0.0.0",
            "--router=127.0.0.1:50051",
            "--advertise-host=10.0.0.7",
            "--kv-transport=loopback",
            "--prefill-progress-timeout-s=10.0",
        } <= set(every[worker])
    assert not any("advertise" in word for word in every["router"])


@pytest.mark.parametrize(
    ("host", "advertised", "remedy"),
    [
        ("127.0.0.1", "10.0.0.7", "--host 0.0.0.0"),
        ("127.0.0.1", "node-7", "--host 0.0.0.0"),
        ("0.0.0.0", "0.0.0.0", "one address of this machine"),
    ],
)
def test_a_fleet_that_nobody_would_reach_where_it_says_is_not_started(
    host: str, advertised: str, remedy: str
) -> None:
    with pytest.raises(ConfigError, match=remedy) as refused:
        planned(host=host, advertise_host=advertised)
    assert refused.value.param == "advertise_host"
    assert planned(host="10.0.0.7", advertise_host="node-7")


def test_threads_that_the_operator_names_are_not_divided() -> None:
    assert "--num-threads=6" in planned(num_threads="6")["decode-0"]


@pytest.mark.parametrize(
    ("cores", "prefill", "decode", "threads"),
    [
        (2, 1, 1, {Role.PREFILL: 2, Role.DECODE: 1}),
        (2, 0, 1, {Role.PREFILL: 2, Role.DECODE: 2}),
        (8, 2, 1, {Role.PREFILL: 4, Role.DECODE: 2}),
        (1, 3, 1, {Role.PREFILL: 1, Role.DECODE: 1}),
        (16, 1, 1, {Role.PREFILL: 16, Role.DECODE: 8}),
    ],
)
def test_decode_has_cores_of_its_own_and_prefill_uses_what_is_left(
    cores: int, prefill: int, decode: int, threads: dict[Role, int]
) -> None:
    shares = share_cores(cores, prefill, decode)
    assert {role: share.num_threads for role, share in shares.items()} == threads


def test_prefill_steps_back_for_decode_on_shared_cores_only() -> None:
    words = planned()
    assert "--niceness=2" in words["prefill-0"]
    assert not any(word.startswith("--niceness") for word in words["decode-0"])
    assert "--niceness=3" in planned(niceness="3")["prefill-0"]
    _, workers = plan_fleet(load_options(ServeOptions, {}, environ={}), Machine(8, ("0",)))
    assert not any(word.startswith("--niceness") for spec in workers for word in spec.argv)


@pytest.mark.parametrize(
    ("flags", "gpus", "share"),
    [
        ({}, (), "--memory-share=0.5"),
        ({}, ("0",), "--memory-share=0.5"),
        ({"prefill": "0"}, ("0",), None),
        ({}, ("0", "1"), None),
        ({"decode": "2"}, ("0", "1"), "--memory-share=0.5"),
        ({"decode": "2"}, (), "--memory-share=0.3333"),
        ({"decode": "2", "device": "cpu"}, ("0", "1", "2"), "--memory-share=0.3333"),
        ({"memory_share": "0.8"}, ("0",), "--memory-share=0.4"),
        ({"prefill": "64", "decode": "64"}, (), "--memory-share=0.0078"),
        ({"tensor_parallel_size": "2"}, ("0", "1"), "--memory-share=0.5"),
        ({"tensor_parallel_size": "2"}, ("0", "1", "2", "3"), None),
        ({"tensor_parallel_size": "4"}, ("0", "1", "2", "3"), "--memory-share=0.5"),
        ({"decode_tensor_parallel_size": "4"}, ("0", "1", "2", "3"), "--memory-share=0.5"),
        ({"tensor_parallel_size": "2"}, (), "--memory-share=0.5"),
    ],
)
def test_workers_of_one_device_share_its_memory(
    flags: dict[str, object], gpus: tuple[str, ...], share: str | None
) -> None:
    options = load_options(ServeOptions, flags, environ={})
    _, workers = plan_fleet(options, Machine(8, gpus))
    for worker in workers:
        said = [word for word in worker.argv if word.startswith("--memory-share")]
        assert said == ([] if share is None else [share])


@pytest.mark.parametrize(
    ("flags", "gpus", "remedy"),
    [
        ({}, ("0",), "--prefill 0 --decode 1"),
        ({"decode": "3"}, ("0", "1"), "--prefill 0 --decode 2"),
        ({}, ("0", "1"), None),
        ({"prefill": "0"}, ("0",), None),
        ({"device": "cpu"}, ("0",), None),
        ({}, (), None),
        ({"tensor_parallel_size": "2"}, ("0", "1"), "4 ranks .*--prefill 0 --decode 1"),
        ({"tensor_parallel_size": "2", "decode": "4"}, ("0", "1", "2", "3"), "--decode 2"),
        ({"tensor_parallel_size": "2"}, ("0", "1", "2", "3"), None),
        ({"tensor_parallel_size": "4", "prefill": "0"}, ("0", "1"), "--tensor-parallel-size to 2"),
    ],
)
def test_engines_that_share_a_gpu_are_told_of_with_what_gives_each_its_own(
    flags: dict[str, object], gpus: tuple[str, ...], remedy: str | None
) -> None:
    options = load_options(ServeOptions, flags, environ={})
    warning = warning_of_shared_gpus(options, Machine(8, gpus))
    assert (warning is None) if remedy is None else re.search(remedy, str(warning))


@pytest.mark.parametrize("quota", ["max 100000", "", "nonsense", "100000 0"])
def test_without_a_quota_every_core_of_the_mask_counts(tmp_path: Path, quota: str) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert available_cores(Cgroups(tmp_path)) == available_cores(Cgroups(tmp_path / "none")) >= 1


def test_a_containers_quota_limits_the_cores(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000")
    assert available_cores(Cgroups(tmp_path)) == 1


@pytest.mark.parametrize("quota", [-1, 100_000])
def test_a_quota_of_the_first_cgroups_counts_too(
    tmp_path: Path, quota: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("50000\n")
    assert available_cores(Cgroups(tmp_path)) == (2 if quota > 0 else 8)


def test_the_least_quota_around_a_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    inner = tmp_path / "pod" / "container"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000")
    (tmp_path / "pod" / "cpu.max").write_text("300000 100000")
    (tmp_path / "self.cgroup").write_text("0::/pod/container\n")
    assert available_cores(Cgroups(tmp_path, tmp_path / "self.cgroup")) == 3


def test_what_others_use_before_the_fleet_starts_is_not_divided() -> None:
    options = load_options(ServeOptions, {}, environ={})
    _, workers = plan_fleet(options, Machine(8, free_memory_share=0.5))
    assert all("--memory-share=0.25" in worker.argv for worker in workers)
    _, workers = plan_fleet(options, Machine(8, ("0",), free_memory_share=0.5))
    assert all("--memory-share=0.5" in worker.argv for worker in workers)


def test_a_free_port_is_claimed_and_zero_becomes_one() -> None:
    port = claimed_port("127.0.0.1", 0, flag="--port")
    assert port > 0 and claimed_port("127.0.0.1", port, flag="--port") == port


def test_ports_that_are_claimed_together_are_all_different() -> None:
    """One by one, some of so many would come twice."""
    with PortClaims() as claims:
        ports = [claims.claim("127.0.0.1", 0, flag="--port") for _ in range(400)]
    assert len(set(ports)) == len(ports)


def test_ports_that_are_named_are_claimed_before_the_system_gives_any() -> None:
    asked: list[str] = []

    class Heard(PortClaims):
        def claim(self, host: str, port: int, *, flag: str) -> int:
            asked.append(flag)
            return super().claim(host, port, flag=flag)

    named = free_port()
    wanted = {"--port": 0, "--grpc-port": named, "--page-port": 0}
    with Heard() as claims:
        ports = claims.claim_all({flag: ("127.0.0.1", port) for flag, port in wanted.items()})
    assert asked == ["--grpc-port", "--port", "--page-port"]
    assert ports["--grpc-port"] == named and len(set(ports.values())) == 3


def test_a_taken_port_is_an_error_that_names_port_holder_and_flag() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} .*in use.*--grpc-port"):
            claimed_port("127.0.0.1", port, flag="--grpc-port")


def test_a_host_that_is_not_ours_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        claimed_port("192.0.2.1", 0, flag="--port")


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        ("auto", ("0", "1"), ["0", "1", "0"]),
        ("cuda", ("7",), [None, None, None]),
        ("auto", (), [None, None, None]),
        ("cpu", ("0", "1"), [None, None, None]),
    ],
)
def test_workers_take_the_gpus_in_turn(
    device: str, gpus: tuple[str, ...], expected: list[str | None]
) -> None:
    options = load_options(
        ServeOptions, {"prefill": "1", "decode": "2", "device": device}, environ={}
    )
    _, workers = plan_fleet(options, Machine(8, gpus))
    assert [worker.environ.get("CUDA_VISIBLE_DEVICES") for worker in workers] == expected


def test_each_rank_of_a_worker_gets_a_gpu_and_none_gets_one_twice() -> None:
    flags = {"prefill": "1", "decode": "2", "decode_tensor_parallel_size": "2"}
    options = load_options(ServeOptions, flags, environ={})

    def visible(num_gpus: int) -> list[str | None]:
        machine = Machine(8, tuple(map(str, range(num_gpus))))
        _, workers = plan_fleet(options, machine)
        return [worker.environ.get("CUDA_VISIBLE_DEVICES") for worker in workers]

    assert visible(5) == ["0", "1,2", "3,4"]
    assert visible(3) == ["0", "1,2", "0,1"]
    assert warning_of_shared_gpus(options, Machine(8, tuple("01234"))) is None
    assert warning_of_shared_gpus(options, Machine(8, tuple("0123"))) is not None


def test_gpus_are_those_of_the_variable_or_else_of_the_device_files(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    host = NvidiaHost(tmp_path)
    assert visible_gpus({}, host) == ("0", "1")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-a, 2"}, host) == ("GPU-a", "2")


@pytest.mark.parametrize(
    ("value", "gpus"), [("", ()), ("-1", ()), ("1,-1,0", ("1",)), ("NoDevFiles", ())]
)
def test_gpus_behind_the_first_that_is_none_are_hidden(
    tmp_path: Path, value: str, gpus: tuple[str, ...]
) -> None:
    (tmp_path / "nvidia0").touch()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": value}, NvidiaHost(tmp_path)) == gpus


def test_a_variable_makes_no_gpus_where_there_is_none(tmp_path: Path) -> None:
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, NvidiaHost(tmp_path)) == ()


def test_engines_that_are_kept_from_a_gpu_share_the_machine_as_on_any_other() -> None:
    options = load_options(ServeOptions, {"device": "cpu"}, environ={})
    plans = [
        [worker.argv for worker in plan_fleet(options, Machine(8, gpus, free_memory_share=0.5))[1]]
        for gpus in ((), ("0",), ("0", "1"))
    ]
    assert plans[0] == plans[1] == plans[2]
    assert "--memory-share=0.25" in plans[0][0]
    assert any(word.startswith("--niceness=") for word in plans[0][0])


def test_the_defaults_of_serve_are_the_routers_own() -> None:
    assert ServeOptions().router == RouterOptions()


def words_at(address: str, cores: int = 8, free: float = 1.0, **flags: object) -> set[str]:
    """Of prefill-0, launched on a node at this address of a cluster in which ours is 10.0.0.1."""
    options = load_options(ServeOptions, {"grpc_port": "7000", **flags}, environ={})
    _, (worker, *_) = plan_fleet(options, Machine(8, address="10.0.0.1"))
    assert worker.ranks == 1 and worker.argv_at is not None
    node = NodeFacts(
        address=address, num_cores=cores, free_memory_share=free, free_memory_share_now=free
    )
    return set(worker.argv_at(node))


def test_workers_of_a_cluster_listen_at_their_node_and_reach_the_router_where_it_listens() -> None:
    everywhere, private = {"host": "0.0.0.0"}, {"host": "192.168.1.5"}
    assert {"--host=10.0.0.2", "--router=10.0.0.1:7000"} <= words_at("10.0.0.2", **everywhere)
    assert {"--host=10.0.0.1", "--router=10.0.0.1:7000"} <= words_at("10.0.0.1", **everywhere)
    assert {"--host=10.0.0.2", "--router=192.168.1.5:7000"} <= words_at("10.0.0.2", **private)
    assert {"--host=192.168.1.5", "--router=192.168.1.5:7000"} <= words_at("10.0.0.1", **private)


def test_a_node_that_joined_later_is_judged_when_a_worker_is_launched_there() -> None:
    assert "--router=127.0.0.1:7000" in words_at("10.0.0.1")
    with pytest.raises(ConfigError, match=r"nodes at 10\.0\.0\.9, .* add --host 0.0.0.0"):
        words_at("10.0.0.9")
    with pytest.raises(ConfigError, match="leave it out"):
        words_at("10.0.0.9", host="0.0.0.0", advertise_host="10.0.0.1")


def test_threads_and_memory_are_shares_of_the_node_where_a_worker_is_launched() -> None:
    named = {"host": "0.0.0.0", "device": "cpu"}
    assert {"--num-threads=8", "--memory-share=0.5"} <= words_at("10.0.0.1", **named)
    small = words_at("10.0.0.2", cores=2, free=0.5, **named)
    assert {"--num-threads=2", "--memory-share=0.25"} <= small


def test_on_one_machine_nothing_is_left_to_the_launch() -> None:
    _, workers = plan_fleet(load_options(ServeOptions, {}, environ={}), Machine(8))
    assert [(worker.argv_at, worker.ranks) for worker in workers] == [(None, 1), (None, 1)]
