"""A command that leaves busy cores to others: python -m benchmarks.stepped_back NICENESS COMMAND...

`nice` alone does nothing for what leads a session (cluster/process/priority.py).
"""

from __future__ import annotations

import os
import sys

from cluster.process.priority import step_back

if __name__ == "__main__":
    niceness, *command = sys.argv[1:]
    step_back(int(niceness))
    os.execvp(command[0], command)
