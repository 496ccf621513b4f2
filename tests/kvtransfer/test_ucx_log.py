"""UCX's protocol report becomes words."""

from __future__ import annotations

import os

import pytest

from kvtransfer.ucx_log import UcxLog, in_words

HOST_READ = """
[1.2] [vm:7 :0]   +--------+-------------+----------------------------------------+
[1.2] [vm:7 :0]   | D7 self cfg#0                                                 |
[1.2] [vm:7 :0]   | remote memory read by ucp_get* into host memory from host     |
[1.2] [vm:7 :0]   | 0..inf | zero-copy   | self/memory                            |
[1.3] [vm:7 :0]   | D7 inter-node cfg#1                                           |
[1.3] [vm:7 :0]   | remote memory read by ucp_get*(multi) into host memory from host |
[1.3] [vm:7 :0]   | Range  | Description | Config                                 |
[1.3] [vm:7 :0]   | 0..8191 | software emulation | tcp/eth0                       |
[1.3] [vm:7 :0]   | 8K..64K | odd | never parsed                                  |
"""
LARGE = "[1.3] [vm:7 :0]   | 8192..inf | zero-copy | rc_mlx5/mlx5_0:1 50% |\n"
GPU_READ = """
[1.4] [vm:7 :0]   | D7 intra-node cfg#2                                           |
[1.4] [vm:7 :0]   | remote memory read by ucp_get* into cuda/GPU0 from cuda       |
[1.4] [vm:7 :0]   | 0..inf | zero-copy   | cuda_ipc/cuda                          |
"""


def printed(log: UcxLog, text: str) -> None:
    """As UCX does it: it opens the file by its name."""
    with open(log.environment()["UCX_LOG_FILE"], "a") as file:
        file.write(text)


def test_nothing_is_known_before_the_first_read() -> None:
    assert UcxLog().link(4096, "DRAM") is None


def test_the_row_of_the_block_size_counts_and_the_agents_own_loop_does_not() -> None:
    log = UcxLog()
    printed(log, HOST_READ.replace("8K..64K", "8K") + LARGE)
    assert log.link(4096, "DRAM") == "tcp (eth0)"


def test_reads_into_a_gpu_are_told_from_reads_of_generations() -> None:
    log = UcxLog()
    printed(log, GPU_READ)
    assert log.link(4096, "DRAM") is None
    assert log.link(4096, "VRAM") == "NVLink or PCIe (cuda_ipc)"


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("cma/memory", "shared memory (cma)"),
        ("sysv/memory", "shared memory (sysv)"),
        ("rc_mlx5/mlx5_0:1", "RDMA (rc_mlx5/mlx5_0:1)"),
        ("something/new", "something/new"),
    ],
)
def test_links_have_words(link: str, words: str) -> None:
    assert in_words(link) == words


def test_warnings_of_ucx_reach_our_log(capsys: pytest.CaptureFixture[str]) -> None:
    log = UcxLog()
    printed(log, "[1.5] [vm:7 :0]  mpool.c:40 UCX  WARN  object was not returned\n")
    log.refresh()
    assert "object was not returned" in "".join(capsys.readouterr())


def test_the_log_is_memory_not_a_file() -> None:
    path = UcxLog().environment()["UCX_LOG_FILE"]
    assert "memfd" in os.readlink(path)
