from __future__ import annotations

import resource
import subprocess
import sys

_UNDER_A_TIGHTER_LIMIT = """
import resource
from router.text_worker.limits import TextLimits
hard = 3 << 30
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
assert TextLimits(1 << 40).hold_memory()
print(resource.getrlimit(resource.RLIMIT_AS)[1] == hard)
resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
TextLimits(1 << 30).hold_cpu(10_000_000_000)
print(resource.getrlimit(resource.RLIMIT_CPU) == (5, 5))
"""
_WITHOUT_PROC = """
from pathlib import Path
from router.text_worker import limits
def missing(self):
    raise FileNotFoundError(self)
Path.read_text = missing
print(limits.TextLimits(1 << 30).hold_memory())
"""


def _said(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_tighter_limit_that_was_there_stays() -> None:
    assert _said(_UNDER_A_TIGHTER_LIMIT) == ["True", "True"]


def test_where_the_system_says_nothing_of_memory_none_is_limited() -> None:
    assert _said(_WITHOUT_PROC) == ["False"]
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
