"""Which link UCX really chose: read from its own protocol report, never guessed.

UCX prints, at the first read over a connection, a table of the protocols it selected; asking for
just that table (UCX_PROTO_INFO) and sending UCX's log to memory (UCX_LOG_FILE) makes it readable:

    | D42 intra-node cfg#1                                        |
    | remote memory read by ucp_get*(multi) into host memory from host |
    | Range  | Description        | Config                        |
    | 0..inf | zero-copy          | cma/memory                    |

UCX opens its log file once per process, so there is one UcxLog per process. Warnings and errors of
UCX, which would have gone to the terminal, are passed on to our log.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import threading

from cluster.logs import get_logger

READ_PROTOCOLS = "*read by ucp_get*"
_SHARED_MEMORY = ("cma", "knem", "xpmem", "posix", "sysv")
_CELLS = re.compile(r"\|(.*)\|")
_SIZES = re.compile(r"(\d+)(?:\.\.(\d+|inf))?")
_log = get_logger("kvtransfer.ucx")


class UcxLog:
    """UCX's log, kept in memory. `link` may be called from any thread."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("ucx-log")
        self._offset = 0
        self._lock = threading.Lock()
        self._is_remote = False
        """The table at hand is not that of an agent's connection to itself."""
        self._rows: list[tuple[int, float, str]] = []
        """(smallest size, largest size, configuration such as "cma/memory") of that table."""
        self._reads: dict[str, list[tuple[int, float, str]]] = {}
        """The last table of reads from others, by the memory that they go into."""

    def environment(self) -> dict[str, str]:
        """To be set while the library is loaded and an agent is made; not for child processes."""
        return {
            "UCX_LOG_FILE": f"/proc/self/fd/{self._fd}",
            "UCX_PROTO_INFO": READ_PROTOCOLS,
        }

    def link(self, block_bytes: int, memory: str) -> str | None:
        """What reads of one block took last, in words; None before the first such read.

        `memory` is "VRAM" or "DRAM" of the local pool: reads of the generations, always from host
        to host, are not taken for reads of blocks in a GPU.
        """
        with self._lock:
            self.refresh()
            rows = list(self._reads.get(memory, ()))
        fitting = (link for smallest, largest, link in rows if smallest <= block_bytes <= largest)
        return next(map(in_words, fitting), None)

    def refresh(self) -> None:
        """Takes in what UCX has printed since the last call."""
        ctypes.CDLL(None).fflush(None)  # UCX writes through stdio, which holds small outputs back
        text = os.pread(self._fd, os.fstat(self._fd).st_size - self._offset, self._offset)
        self._offset += len(text)
        for line in text.decode(errors="replace").splitlines():
            if (row := _CELLS.search(line)) is not None:
                self._take([cell.strip() for cell in row[1].split("|")])
            elif " WARN " in line or " ERROR " in line or "Fatal" in line:
                _log.warning("UCX reports", line=line.split("]", 2)[-1].strip())

    def _take(self, cells: list[str]) -> None:
        if " cfg#" in cells[0]:
            self._is_remote = " self cfg" not in cells[0]
        elif len(cells) == 1:
            self._rows = []
            if self._is_remote:
                self._reads["DRAM" if "into host" in cells[0] else "VRAM"] = self._rows
        elif len(cells) == 3 and (sizes := _SIZES.fullmatch(cells[0])) is not None:
            self._rows.append((int(sizes[1]), _largest(*sizes.groups()), cells[2]))


def _largest(smallest: str, largest: str | None) -> float:
    """Of one size alone, it is that."""
    return math.inf if largest == "inf" else int(largest or smallest)


def in_words(link: str) -> str:
    """`cma/memory` is "shared memory (cma)"; unknown names are given as they are."""
    name, _, rest = link.partition("/")
    if name in _SHARED_MEMORY:
        return f"shared memory ({name})"
    if name == "tcp":
        return f"tcp ({rest})"
    if name == "cuda_ipc":
        return "NVLink or PCIe (cuda_ipc)"
    return f"RDMA ({link})" if name.startswith(("rc_", "dc_", "ud_", "srd")) else link
