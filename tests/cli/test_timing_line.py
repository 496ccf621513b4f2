"""The line that ends an answer."""

from __future__ import annotations

import pytest

from cli.timing_line import timing_line
from cluster.terminal_text import size_in_words


def test_an_answer_that_was_prefilled_where_it_was_decoded_says_so() -> None:
    line = timing_line({"ttft_ms": 20.0, "prefill_ms": 20.0, "decode_worker": "decode-1"}, {})
    assert line == (
        "ttft 20 ms = queue 0 + prefill 20 + kv 0 + decode 0 | itl 0.0 ms | kv none | "
        "cached 0/0 | D decode-1 alone"
    )


def test_a_server_without_timings_still_gets_its_usage_shown() -> None:
    assert timing_line({}, {"prompt_tokens": 3}) == "the server gave no timings | cached 0/3"


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (131072, "128 KiB"), (3 * 2**40, "3072 GiB")],
)
def test_sizes_in_words(num_bytes: int, words: str) -> None:
    assert size_in_words(num_bytes) == words
