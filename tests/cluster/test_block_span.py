"""Neighbouring blocks of a sequence keep together what belongs to each."""

from cluster.block_span import BlockSpan
from cluster.wire import span_from_wire, span_to_wire

SPAN = BlockSpan(5, [9, 3, 4], [1, 2**40, 3], b"aabbcc")


def test_a_part_of_a_span_has_what_belongs_to_its_blocks():
    assert SPAN.part(1, 3) == BlockSpan(6, [3, 4], [2**40, 3], b"bbcc")
    assert SPAN.part(1, 1) == BlockSpan(6, [], [], b"")
    assert (SPAN.num_blocks, SPAN.end_index) == (3, 8)


def test_parts_that_follow_each_other_join_into_the_span():
    assert BlockSpan.joined([SPAN.part(0, 1), SPAN.part(1, 2), SPAN.part(2, 3)]) == SPAN


def test_a_span_whose_lists_are_not_parallel_says_so():
    assert SPAN.problem() == ""
    assert BlockSpan(0, []).problem() == ""
    assert "3 blocks with 0 generations" in BlockSpan(0, [1, 2, 3]).problem()
    assert "7 digest bytes" in BlockSpan(0, [1, 2, 3], [1, 1, 1], b"1234567").problem()


def test_a_span_survives_the_wire():
    assert span_from_wire(span_to_wire(SPAN)) == SPAN
