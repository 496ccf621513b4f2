"""In what two templates differ."""

from __future__ import annotations

from typing import Any

from cluster.scaling.template_changes import MAX_CHANGES, MAX_CHARS, template_changes


def template(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "worker", **container}]}}


def variable(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def test_templates_that_are_alike_differ_in_nothing() -> None:
    assert template_changes(template(image="a"), template(image="a")) == ()


def test_what_differs_is_named_by_its_place_with_both_values() -> None:
    now = template(image="worker:2", env=[variable("POOL", "a"), variable("OLD", "x")])
    then = template(image="worker:1", env=[variable("POOL", "b")], args=["one"])
    assert template_changes(now, then) == (
        "containers.worker.image: worker:2 -> worker:1",
        "containers.worker.env.POOL.value: a -> b",
        "containers.worker.env.OLD: {'name': 'OLD', 'value': 'x'} -> nothing",
        "containers.worker.args: nothing -> ['one']",
    )


def test_items_without_names_are_told_by_their_places() -> None:
    changes = template_changes(template(args=["serve", "--a"]), template(args=["serve", "--b"]))
    assert changes == ("containers.worker.args.1: --a -> --b",)


def test_what_is_called_a_secret_is_told_to_have_changed_and_masked() -> None:
    now = template(env=[variable("HF_TOKEN", "hf_abcdefghijk")])
    then = template(env=[variable("HF_TOKEN", "hf_lmnopqrstuv")])
    (change,) = template_changes(now, then)
    assert change == "containers.worker.env.HF_TOKEN.value: *** -> ***"


def test_how_much_is_told_is_bounded() -> None:
    now = template(env=[variable(f"V{number}", "x" * 500) for number in range(50)])
    then = template(env=[variable(f"V{number}", "y") for number in range(50)])
    changes = template_changes(now, then)
    assert len(changes) == MAX_CHANGES + 1 and changes[-1] == "and 30 more"
    assert all(len(change) < MAX_CHARS + 80 for change in changes)
