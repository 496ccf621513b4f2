"""vLLM's page of metrics."""

from __future__ import annotations

from router.vllm.server_numbers import (
    _LABEL,
    MAX_COUNT,
    MAX_PAGE_BYTES,
    ServerNumbers,
    numbers_in,
)
from tests.router.vllm import recorded


def test_the_load_is_what_vllm_says_of_itself() -> None:
    numbers = numbers_in(recorded.METRICS)
    load = numbers.load(None)
    assert (load.num_running, load.num_waiting, load.num_preemptions) == (3, 2, 1)
    assert (load.total_blocks, load.free_blocks, load.active_blocks) == (364, 273, 91)
    assert numbers.block_size_tokens == 128 and numbers.late_reads == 4
    assert numbers.started == "1795380171.68"
    assert load.decode_step_ms == 20.0 and load.fault is None


def test_a_step_takes_what_the_tokens_since_the_last_look_took() -> None:
    before = numbers_in(recorded.METRICS)
    after = numbers_in(
        recorded.METRICS.replace(b" 100.0\n", b" 150.0\n").replace(b" 2.0\nvllm:c", b" 4.0\nvllm:c")
    )
    assert after.load(before).decode_step_ms == 40.0


def test_what_it_has_computed_is_known_where_it_says_so() -> None:
    page = (
        b'vllm:prompt_tokens_total{engine="0"} 40.0\nvllm:generation_tokens_total{engine="0"} 2.0'
    )
    assert numbers_in(page).num_tokens == 42.0
    assert numbers_in(b"").num_tokens is None


def test_engines_of_one_server_are_summed() -> None:
    second = recorded.METRICS.replace(b'engine="0"', b'engine="1"')
    numbers = numbers_in(recorded.METRICS + second)
    assert (numbers.total_blocks, numbers.num_running, numbers.used_share) == (728, 6, 0.25)


def test_what_is_missing_or_is_no_number_counts_as_not_said() -> None:
    assert numbers_in(b"") == ServerNumbers()
    garbage = recorded.METRICS.replace(b" 3.0\n", b" NaN\n").replace(b" 2.0\n", b" -5\n")
    assert numbers_in(garbage).load(None).fault is None
    assert numbers_in(b"\xff\xfe{}\nvllm:num_requests_running ") == ServerNumbers()


def test_counts_are_no_larger_than_records_hold() -> None:
    huge = b'vllm:cache_config_info{num_gpu_blocks="99999999999"} 1.0\n'
    numbers = numbers_in(huge + huge + b"vllm:num_requests_running 9e12\n")
    assert numbers.total_blocks == numbers.num_running == MAX_COUNT


def test_a_page_without_end_is_read_to_a_line_and_a_long_word_is_no_label() -> None:
    line = b"vllm:num_requests_running 1.0\n"
    page = line * (MAX_PAGE_BYTES // len(line) + 1000)
    assert numbers_in(page).num_running == MAX_PAGE_BYTES // len(line)
    longest = max(len(found[0]) for found in _LABEL.findall(b"x" * 1000 + b'="1"'))
    assert longest == 64
