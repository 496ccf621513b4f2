"""Blocks of an engine whose cache's salts end otherwise by now."""

from dataclasses import replace

from tests.router.engine_events.engine import SALT, SOURCE, stored
from tests.router.engine_events.test_engine_blocks import PROMPT, Told


def test_only_salts_that_end_as_those_of_requests_by_now_are_believed() -> None:
    ends = ["-a"]
    told = Told(source=replace(SOURCE, salt_ends=lambda: (ends[-1], "-passed")))
    told.hear(stored([7], None, PROMPT[:4], extra_keys=[[f"{SALT}-a"]]))
    assert told.num_matched(PROMPT) == 1
    ends.append("-b")
    told.hear(stored([8], None, [8] * 4, extra_keys=[[f"{SALT}-a"]]))
    told.hear(stored([9], None, [9] * 4, extra_keys=[[SALT]]))
    told.hear(stored([10], None, [10] * 4, extra_keys=[[f"{SALT}-passed"]]))
    assert told.num_matched([10] * 4) == 1
    assert told.left_out == {"other_salt": 2} and told.num_matched([8] * 4) == 0
