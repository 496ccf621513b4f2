"""The stated goals of the project for SmolLM2-135M in bfloat16 on the 2-core test machine."""

from __future__ import annotations

from typing import Final

PREFILL_512_MS: Final = 250.0
DECODE_1_MS: Final = 15.0
"""Per token of a single sequence."""
DECODE_16_MS: Final = 40.0
"""Per step of sixteen sequences."""
ROUTER_P50_MS: Final = 1.0
"""From HTTP in to the worker, of a request by one client."""
INDEX_P50_US: Final = 40.0
QUIET_ITL_FACTOR: Final = 1.5
"""p99 inter-token latency while 2k-token prompts arrive, over that of a quiet fleet: 1 + 1."""
COLOCATED_ITL_FACTOR: Final = 3.0
"""The same where one worker does both."""
LONG_TTFT_FACTOR: Final = 1.15
"""TTFT of those prompts, over that of an earlier version."""
FREEZE_WAIT_S: Final = 5.0
"""Until a request of a process that stands still goes on elsewhere or has its typed error."""
SPARE_SERVES_S: Final = 5.0
"""From the loss of a rank to a token of the spare worker that takes its group's place."""
ALL_REDUCE_1_ROW_US: Final = 3.0
"""Of two ranks, each on a core of its own, in shared memory."""
ALL_REDUCE_512_ROWS_FACTOR: Final = 1.25
"""Over copying the same bytes in and out: 80 % of that rate."""
ROUTER_ADDS_MS: Final = 1.0
"""To the median request of one client, over asking the worker itself."""
STREAMED_TOKEN_US: Final = 16.0
"""Of a core that is busy with them, 60 thousand a second: 64 streams whose worker is as fast as it
can."""
