"""What is read of an answer that passes by, however it is cut."""

from __future__ import annotations

from random import Random

from cluster.generation import Usage
from router.picker.passing_answer import TAIL_BYTES, PassingAnswer
from tests.router.vllm import recorded


def test_a_stream_is_counted_however_it_is_cut() -> None:
    random = Random(7)
    for _ in range(50):
        watch, rest, num_events = PassingAnswer(), recorded.STREAM, 0
        while rest:
            cut = random.randint(1, 60)
            num_events += watch.take(rest[:cut])
            rest = rest[cut:]
        assert num_events == watch.num_events == 3
        assert watch.usage(0) == Usage(5, 2, 4)


def test_an_answer_in_one_piece_tells_its_usage_and_has_no_events() -> None:
    watch = PassingAnswer()
    long = b"x" * 3 * TAIL_BYTES
    text = b'{"choices":[{"text":"%b"}],' % long
    told = b'"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,'
    end = b'"prompt_tokens_details":null},"prompt_logprobs":["%b"]}' % long
    for piece in (text, told, end[:300], end[300:]):
        assert watch.take(piece) == 0
    assert watch.usage(8) == Usage(9, 3, 8), "what is cached is not told: it is as was expected"


def test_a_text_that_looks_like_a_usage_is_none() -> None:
    watch = PassingAnswer()
    watch.take(rb'data: {"choices":[{"text":"\"usage\":{\"prompt_tokens\":1}"}]}')
    assert watch.usage(0) is None
    watch.take(b'data: {"usage":{"prompt_tokens":"many"}}')
    assert watch.usage(0) is None
