"""The doctor's report, and the checks that need no heavy library."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from cli.doctor import examine, machine, probe, software
from cli.doctor.finding import Check, Finding, Verdict, broken, fine, poor
from cli.exit_code import ExitCode
from cluster.errors import ConfigError
from cluster.home import default_home
from cluster.supervisor.devices import NvidiaHost

FINE = Check("fine", lambda: fine("all is well"))
POOR = Check("poor", lambda: poor("slow", "buy a faster one"))
BROKEN = Check("broken", lambda: broken("gone", "put it back"))


def raising() -> Finding:
    raise RuntimeError("the check itself")


def test_locked_memory_is_a_matter_of_the_limit_or_of_a_capability_that_is_in_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the bounding set alone, as a pod that is not root has it, it does nothing."""
    status = tmp_path / "status"
    limit = {"soft": 8 * 2**20}
    monkeypatch.setattr(machine.resource, "getrlimit", lambda kind: (limit["soft"], limit["soft"]))
    status.write_text("CapPrm:\t0000000000004000\nCapEff:\t0000000000000000\nCapBnd:\t4000\n")
    found = machine._memlock(status)
    assert found.verdict is Verdict.WARN and "container runtime" in (found.hint or "")
    status.write_text("CapEff:\t00000000a80465fb\n")
    assert machine._memlock(status).verdict is Verdict.OK
    limit["soft"] = machine.resource.RLIM_INFINITY
    assert machine._memlock(tmp_path / "none").verdict is Verdict.OK


def test_each_check_is_a_line_with_verdict_cost_and_hint(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of one that was found before, what it took then; and no 0 ms."""
    slow, quick = (
        Check("x", lambda ms=ms: replace(fine("well"), took_ms=ms)) for ms in (12.4, 0.2)
    )
    assert examine.report([slow, quick, POOR], output="table") is ExitCode.OK
    out, err = capsys.readouterr()
    first, second, third, hint = out.splitlines()
    assert (first, second) == ("ok    well (12 ms)", "ok    well")
    assert third.startswith("warn  slow") and hint.strip() == "hint: buy a faster one"
    assert err == "0 failed, 1 warnings, 2 ok\n"


def test_a_failed_check_is_exit_code_1_and_the_others_still_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    checks = [BROKEN, Check("raises", raising), FINE]
    assert examine.report(checks, output="json") is ExitCode.FAILED
    lines = json.loads(capsys.readouterr().out)
    assert [line["verdict"] for line in lines] == ["fail", "fail", "ok"]
    assert "the check itself" in lines[1]["text"] and lines[1]["hint"]


def test_a_taken_port_is_a_warning_with_the_flag_that_helps() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        finding = machine._port(listener.getsockname()[1], "--port")
    assert finding.verdict is Verdict.WARN and "--port" in finding.hint


def test_a_cache_folder_that_cannot_be_made_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPLITSERVE_HOME", str(tmp_path / "file" / "below"))
    finding = machine._cache()
    assert finding.verdict is Verdict.FAIL and "SPLITSERVE_HOME" in finding.hint


def test_a_user_without_a_home_is_told_to_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPLITSERVE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(ConfigError, match="HOME is not set.*SPLITSERVE_HOME"):
        default_home()
    finding = machine._cache()
    assert finding.verdict is Verdict.FAIL and "SPLITSERVE_HOME" in finding.hint


@pytest.mark.parametrize(
    ("flags", "verdict"),
    [
        ("fpu avx2 avx512f", Verdict.WARN),
        ("fpu avx2 avx512f avx512_bf16", Verdict.OK),
        ("fpu avx2 fma f16c", Verdict.OK),
        ("fp asimd bf16", Verdict.OK),
    ],
)
def test_a_cpu_without_bfloat16_and_native_kernels_is_a_warning(
    flags: str, verdict: Verdict, tmp_path: Path
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"flags : {flags}\n")
    assert machine._cpu(cpuinfo).verdict is verdict


@pytest.mark.parametrize(
    ("facts", "verdict", "said"),
    [
        ({"reason": "", "level": "avx2"}, Verdict.OK, "native, for avx2"),
        (
            {"reason": "this CPU lacks fma, f16c", "level": ""},
            Verdict.WARN,
            "torch: this CPU lacks",
        ),
    ],
)
def test_the_level_of_the_native_kernels_is_told_or_what_the_cpu_lacks(
    facts: dict[str, str], verdict: Verdict, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "probe", lambda name: facts)
    finding = software._cpu_kernels()
    assert finding.verdict is verdict and said in finding.text


def test_the_package_named_kernels_is_ours_here() -> None:
    assert software._kernels().verdict is Verdict.OK


def test_hugging_faces_package_of_the_same_name_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(software, "_version_of", lambda name: "0.10")
    finding = software._kernels()
    assert finding.verdict is Verdict.FAIL and "environment of its own" in finding.hint


def test_a_probe_that_dies_is_told_with_its_last_words() -> None:
    with pytest.raises(probe.ProbeFailed, match="KeyError: 'no such probe'"):
        probe.probe("no such probe")


def test_torch_is_looked_at_from_another_process() -> None:
    assert probe.probe("torch")["version"]


def test_a_library_that_cannot_be_loaded_is_a_failure_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(name: str) -> dict[str, object]:
        raise probe.ProbeFailed("ImportError: libucp.so.0")

    monkeypatch.setattr(software, "probe", fails)
    for look in (software._torch, software._nixl, software._transfer):
        finding = look()
        assert finding.verdict is Verdict.FAIL and finding.hint and "libucp" in finding.text


@pytest.mark.long
def test_two_ranks_sum_a_row_for_real_and_the_report_says_by_what(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finding = software._collectives()
    assert "two ranks sum a row of 576 in" in finding.text and " us over " in finding.text
    facts = {"kind": "gloo", "why_slow": "this CPU lacks fma, f16c", "median_us": 130.2}
    monkeypatch.setattr(software, "probe", lambda name: facts)
    finding = software._collectives()
    assert finding.verdict is Verdict.WARN
    assert finding.text.endswith("in 130.2 us over gloo: this CPU lacks fma, f16c")


def test_ranks_that_cannot_sum_are_a_warning_with_their_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(name: str) -> dict[str, object]:
        raise probe.ProbeFailed("rank 1 of the self-test ended with 1: no memory")

    monkeypatch.setattr(software, "probe", fails)
    finding = software._collectives()
    assert finding.verdict is Verdict.WARN and "no memory" in finding.text
    assert "--tensor-parallel-size 1" in finding.hint


def test_a_ray_that_cannot_be_used_or_is_none_that_was_tested_is_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(software, "_version_of", lambda name: None)
    assert software._ray().verdict is Verdict.OK
    monkeypatch.setattr(software, "_version_of", lambda name: "2.70.0")
    monkeypatch.setattr(software, "probe", lambda name: {"reason": "there is no room"})
    finding = software._ray()
    assert finding.verdict is Verdict.WARN and "no room" in finding.text and finding.hint
    facts = {"version": "2.70.0", "whose": "the cluster", "address": "a:1", "num_nodes": 2}
    facts |= {"connect_s": 1.0, "place_s": 0.5, "free": "CPU 2"}
    monkeypatch.setattr(software, "probe", lambda name: facts)
    finding = software._ray()
    assert finding.verdict is Verdict.WARN and "2.60" in finding.hint


def test_a_gpu_that_torch_cannot_use_is_a_failure_with_driver_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"version": "2.13.0", "cuda": "13.0", "device": "cpu", "threads": 2}
    monkeypatch.setattr(software, "probe", lambda name: facts)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05")
    host = NvidiaHost(tmp_path, tmp_path / "version")
    assert software._torch(host).verdict is Verdict.OK
    (tmp_path / "nvidia0").touch()
    finding = software._torch(host)
    assert finding.verdict is Verdict.FAIL and "535.104.05" in finding.text
    assert "update the driver" in finding.hint and "--device cpu" in finding.hint
    assert software._torch(NvidiaHost(tmp_path)).verdict is Verdict.FAIL


def test_cards_that_nccl_could_not_use_for_want_of_a_library_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "_RDMA_CARDS", tmp_path / "none")
    assert "verbs" not in [check.name for check in machine.machine_checks((0, 0))]
    (tmp_path / "mlx5_0").mkdir()
    monkeypatch.setattr(machine, "_RDMA_CARDS", tmp_path)
    assert "verbs" in [check.name for check in machine.machine_checks((0, 0))]
    monkeypatch.setattr(machine, "_VERBS", "libnobody-has-this.so.1")
    finding = machine._verbs()
    assert finding.verdict is Verdict.WARN and "ibverbs-providers" in finding.hint
    assert "mlx5_0: libnobody" in finding.text
    monkeypatch.setattr(machine, "_VERBS", "libc.so.6")
    assert machine._verbs().verdict is Verdict.OK
