"""docs/options.md is what the dataclasses say."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.options_page import options_page
from cluster.config import RouterOptions, ServeOptions, WorkerOptions
from cluster.options import option_specs
from cluster.planner_options import PlannerOptions

PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def test_the_page_of_options_is_what_the_dataclasses_say() -> None:
    assert PAGE.read_text() == options_page(), "run python -m cli.options_page > docs/options.md"


@pytest.mark.parametrize("cls", [RouterOptions, WorkerOptions, ServeOptions, PlannerOptions])
def test_every_option_that_an_operator_sets_is_on_the_page(cls: type) -> None:
    rows = [line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    for name, spec in option_specs(cls).items():
        if name != "role":  # the command sets it
            assert spec.flag in rows, f"{spec.flag} is missing"
