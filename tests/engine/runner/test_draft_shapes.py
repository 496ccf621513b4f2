"""Which steps with drafts are captured, and how long drafts may then be."""

from __future__ import annotations

import pytest

from engine.runner.draft_shapes import MOST_ROWS, ROWS_EACH, DraftShape, DraftShapes

SHAPES = DraftShapes(max_num_seqs=64, max_batch_tokens=512, max_context_tokens=2048)


def test_every_shape_is_within_the_rows_of_logits_that_memory_is_planned_for() -> None:
    shapes = SHAPES.all()
    assert len(shapes) == len(set(shapes)) == 22
    assert max(shape.num_rows for shape in shapes) == MOST_ROWS
    assert DraftShape(1, 16) in shapes
    assert DraftShape(64, 2) in shapes
    assert DraftShape(64, 4) not in shapes


@pytest.mark.parametrize(
    "shapes",
    [
        SHAPES,
        DraftShapes(max_num_seqs=19, max_batch_tokens=512, max_context_tokens=2048),
        DraftShapes(max_num_seqs=3, max_batch_tokens=7, max_context_tokens=24),
        DraftShapes(max_num_seqs=256, max_batch_tokens=8192, max_context_tokens=4096),
    ],
)
def test_a_step_whose_drafts_are_short_enough_is_always_captured(shapes: DraftShapes) -> None:
    for num_seqs in range(1, shapes.max_num_seqs + 1):
        longest = shapes.max_draft_tokens(num_seqs)
        assert longest in (0, *(rows - 1 for rows in ROWS_EACH))
        for num_rows in range(2, longest + 2):
            shape = shapes.holding(num_seqs, num_rows)
            assert shape in shapes.all()
            assert shape.num_seqs >= num_seqs
            assert num_rows <= shape.rows_each < 2 * num_rows
        assert shapes.holding(num_seqs, longest + 2) is None or longest == 0


def test_fewer_sequences_have_longer_drafts() -> None:
    assert [SHAPES.max_draft_tokens(n) for n in (1, 8, 9, 16, 17, 33, 64)] == [
        15,
        15,
        7,
        7,
        3,
        1,
        1,
    ]
    assert SHAPES.max_draft_tokens(65) == 0
    assert SHAPES.holding(65, 2) is None
    assert SHAPES.holding(3, 17) is None


def test_no_shape_has_more_rows_than_a_step_or_a_context_has_tokens() -> None:
    small = DraftShapes(max_num_seqs=4, max_batch_tokens=6, max_context_tokens=3)
    assert small.all() == [DraftShape(1, 2), DraftShape(2, 2)]
    assert DraftShapes(max_num_seqs=4, max_batch_tokens=1, max_context_tokens=9).all() == []
