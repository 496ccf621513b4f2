"""Alternatives of `oneOf` are told apart in a number of steps that has an end."""

from __future__ import annotations

import itertools
import random
import time
import tracemalloc
from functools import partial
from typing import Any

import pytest

from cluster.errors import InvalidRequest
from router.grammar.exclusion import MAX_DEPTH, Exclusions
from router.grammar.json_schema import checked_schema, target_of
from router.grammar.schema_budget import SchemaBudget
from router.grammar.structural_tag import structural_tag_grammar


def recursive(num_alternatives: int, *, tag: str = "t") -> dict[str, Any]:
    """Alternatives that share properties of a class that holds itself sixteen times."""
    names = [f"p{i}" for i in range(16)]
    to_c = {"$ref": "#/$defs/C"}
    c = {"type": "object", "required": names, "properties": dict.fromkeys(names, to_c)}
    kinds = [
        {
            "type": "object",
            "required": ["a", "b", "c", tag],
            "properties": {"a": to_c, "b": to_c, "c": to_c, tag: {"const": i}},
        }
        for i in range(num_alternatives)
    ]
    return {"$defs": {"C": c}, "oneOf": kinds}


def steps_of(schema: Any) -> int:
    budget = SchemaBudget("schema")
    checked_schema(schema, param="schema", budget=budget)
    return budget.comparisons.num


def test_a_discriminator_behind_recursive_properties_is_found_at_once() -> None:
    assert steps_of(recursive(8)) < 400


def test_recursive_schemas_that_nothing_tells_apart_are_given_up_soon() -> None:
    schema = recursive(2)
    del schema["oneOf"][1]["properties"]["t"]
    budget = SchemaBudget("schema")
    with pytest.raises(InvalidRequest, match="oneOf"):
        checked_schema(schema, param="schema", budget=budget)
    assert budget.comparisons.num < 1000


def test_32_alternatives_whose_last_property_tells_them_apart_are_followed() -> None:
    names = [f"p{i}" for i in range(15)]
    kinds = [
        {
            "type": "object",
            "required": [*names, "kind"],
            "properties": dict.fromkeys(names, {"type": "string"}) | {"kind": {"const": i}},
        }
        for i in range(32)
    ]
    assert steps_of({"oneOf": kinds}) < 4200
    by_reference = {str(i): {"const": i} for i in range(32)}
    for i, kind in enumerate(kinds):
        kind["properties"]["kind"] = {"$ref": f"#/$defs/{i}"}
    assert steps_of({"$defs": by_reference, "oneOf": kinds}) < 4200


def test_alternatives_are_counted_before_pairs_are_made_of_them() -> None:
    many = {"oneOf": [{"const": i} for i in range(256)]}
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="32640 pairs in oneOf"):
            checked_schema(many, param="schema")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000  # as many pairs take over two million


def test_long_enums_are_compared_as_sets() -> None:
    def enum(start: int) -> dict[str, Any]:
        return {"enum": list(range(start, start + 2000))}

    assert steps_of({"oneOf": [enum(0), enum(2000)]}) < 3 * 2000 + 100


def test_who_asks_for_more_steps_than_there_are_is_refused_by_name() -> None:
    long = [{"$ref": f"#/$defs/{i}"} for i in range(3)]
    defs = {str(i): {"enum": list(range(3000 * i, 3000 * (i + 1)))} for i in range(3)}
    nested = {"oneOf": long}
    schema = {"$defs": defs, "properties": {str(i): nested for i in range(8)}}
    with pytest.raises(InvalidRequest, match="comparisons of alternatives of oneOf") as refused:
        checked_schema(schema, param="schema")
    assert refused.value.param == "schema"


def test_schemas_of_one_structural_tag_share_the_steps() -> None:
    values = list(range(300))
    defs = {"a": {"enum": values}, "b": {"enum": [-1 - value for value in values]}}
    one = {"$defs": defs, "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}
    structures = [{"begin": f"<{i}>", "schema": one, "end": ""} for i in range(30)]
    with pytest.raises(InvalidRequest, match="comparisons"):
        structural_tag_grammar({"triggers": ["<"], "structures": structures}, param="tag")


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ({"const": {"a": [1]}}, {"const": {"a": [2]}}, True),
        ({"const": {"a": [1], "b": 2}}, {"const": {"b": 2.0, "a": [1.0]}}, False),
        ({"enum": [[1], 2]}, {"enum": [{}, "2"]}, True),
        ({"const": []}, {"const": {}}, True),
        ({"const": 1}, {"const": 1.0}, False),
        ({"const": 2**80}, {"const": float(2**80)}, False),
        ({"const": 2**80}, {"const": 2**80 + 1}, True),
        ({"const": True}, {"const": 1}, True),
        ({"const": [False]}, {"enum": [[0], [0.5], [None]]}, True),
        ({"const": ["a", "b"]}, {"enum": [["asb"], ["as1:b"], ["ab", ""]]}, True),
        ({"const": "null"}, {"const": None}, True),
        ({"type": ["integer", "null"]}, {"type": "number"}, False),
        ({"type": ["integer", "null"]}, {"type": ["string", "array"]}, True),
    ],
)
def test_constants_are_compared_as_values(first: Any, second: Any, apart: bool) -> None:
    exclusions = Exclusions(lambda schema: schema, SchemaBudget("schema"))
    assert exclusions.exclude(first, second) is apart
    assert exclusions.exclude(second, first) is apart


def test_what_lies_too_deep_in_a_constant_tells_nothing() -> None:
    def deep(value: Any) -> dict[str, Any]:
        for _ in range(500):
            value = [value]
        return {"const": value}

    exclusions = Exclusions(lambda schema: schema, SchemaBudget("schema"))
    assert exclusions.exclude(deep(1), deep(2)) is False


class Watched(list[Any]):
    """A constant that knows whether it was read."""

    is_read = False

    def __iter__(self) -> Any:
        self.is_read = True
        return super().__iter__()


@pytest.mark.parametrize("keyword", ["const", "enum"])
def test_a_constant_is_read_for_as_many_steps_as_there_is_in_it_taken_before(keyword: str) -> None:
    def schema() -> tuple[Any, Watched]:
        inner = Watched({"a": 0} for _ in range(1000))
        return {keyword: [inner]}, inner

    first, _ = schema()
    assert steps_of({"oneOf": [first, {"const": 1}]}) > 3000
    second, inner = schema()
    budget = SchemaBudget("schema")
    budget.comparisons.take(budget.comparisons.limit - 100, "tools")
    with pytest.raises(InvalidRequest, match="comparisons"):
        checked_schema({"oneOf": [second, {"const": 1}]}, param="schema", budget=budget)
    assert not inner.is_read


def by_turns(first: Any, second: Any, *, num: int = 24, num_shared: int = 14) -> dict[str, Any]:
    """Alternatives of which every other has the second schema where the others have the first,
    before the one whose constant tells them apart."""
    names = [f"p{i}" for i in range(num_shared)]
    kinds = [
        {
            "type": "object",
            "required": [*names, "z"],
            "properties": dict.fromkeys(names, {"$ref": "#/B" if i % 2 else "#/A"})
            | {"z": {"type": "object", "required": ["k"], "properties": {"k": {"const": i}}}},
        }
        for i in range(num)
    ]
    return {"A": first, "B": second, "oneOf": kinds}


def objects(num: int) -> dict[str, Any]:
    return {"const": [{"a": 0} for _ in range(num)]}


def halves(*numbers: int) -> dict[str, Any]:
    """Two enums of lists of two numbers, none of which is in both."""
    rows = [list(row) for row in itertools.product(numbers, repeat=8)]
    return by_turns({"enum": rows[:128]}, {"enum": rows[128:]}, num=12, num_shared=1)


def one_of(numbers: list[int]) -> dict[str, Any]:
    return {"oneOf": [{"enum": numbers}, {"const": ""}]}


def kinds() -> dict[str, Any]:
    return {"type": ["string", *(f"t{i}" for i in range(2000))]}


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("plain", "made_to_cost"),
    [
        (by_turns(objects(1), objects(1)), by_turns(objects(400), objects(400))),
        (halves(1, 2), halves(-1, -2)),
        (one_of(list(range(1500))), one_of([i * (2**61 - 1) for i in range(1500)])),
        (by_turns(STRING, STRING), by_turns(kinds(), kinds())),
    ],
    ids=["large equal constants", "lists of one hash", "numbers of one hash", "no types"],
)
def test_no_values_make_a_step_cost_what_many_do(plain: Any, made_to_cost: Any) -> None:
    """The best of several turns each, in time of this thread."""

    def took_s(schema: Any) -> float:
        began_s = time.thread_time()
        checked_schema(schema, param="schema")
        return time.thread_time() - began_s

    pairs = [(took_s(plain), took_s(made_to_cost)) for _ in range(5)]
    assert min(s for _, s in pairs) < 5 * min(s for s, _ in pairs), pairs


def test_containers_take_steps_though_nothing_is_in_them() -> None:
    """An empty list takes the time of several numbers."""
    numbers = {"oneOf": [{"enum": [0] * 2600}, {"enum": [1] * 2600}]}
    assert checked_schema(numbers, param="schema")
    with pytest.raises(InvalidRequest, match="schema"):
        checked_schema({"oneOf": [{"enum": [{}] * 2600}, {"enum": [[]] * 2600}]}, param="schema")


VALUES = [None, True, False, 0, 1, 1.0, 2, -1, -2, 2.5, "", "a", "1", [], {}, 2**61]
TYPES = ["array", "boolean", "integer", "null", "number", "object", "string"]


def random_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random() if depth < 3 else 0.0
    if kind < 0.6:
        return chance.choice(VALUES)
    if kind < 0.8:
        return [random_value(chance, depth + 1) for _ in range(chance.randrange(3))]
    return {n: random_value(chance, depth + 1) for n in chance.sample("ab", chance.randrange(3))}


def random_schema(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if kind < 0.15:
        return {"$ref": f"#/$defs/{chance.choice('ABX')}"}
    if kind < 0.3:
        return {"const": random_value(chance)}
    if kind < 0.4:
        return {"enum": [random_value(chance) for _ in range(chance.randrange(4))]}
    if kind < 0.55:
        return {"type": chance.choice([*TYPES, chance.sample(TYPES, 3)])}
    if kind < 0.6 or depth > 3:
        return chance.choice([True, {}, None, {"type": []}, {"enum": {}}])
    properties = {n: random_schema(chance, depth + 1) for n in "pqrs" if chance.random() < 0.7}
    return {"type": "object", "required": chance.sample("pqrs", 3), "properties": properties}


def are_equal(first: Any, second: Any) -> bool:
    """As JSON schema has it."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(are_equal, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        same_names = first.keys() == second.keys()
        return same_names and all(are_equal(first[n], second[n]) for n in first)
    return bool(first == second)


def kinds_of(schema: Any) -> set[str] | None:
    stated = schema.get("type")
    names = [stated] if isinstance(stated, str) else stated
    return {"number" if name == "integer" else name for name in names} if names else None


def surely_apart(first: Any, second: Any, resolve: Any, depth: int = 0) -> bool:
    """What `Exclusions` says, said plainly and with no regard to what it costs."""
    first, second = resolve(first), resolve(second)
    if not isinstance(first, dict) or not isinstance(second, dict):
        return False
    ours, theirs = ([s["const"]] if "const" in s else s.get("enum") for s in (first, second))
    if isinstance(ours, list) and isinstance(theirs, list):
        return not any(are_equal(a, b) for a in ours for b in theirs)
    kinds, others = kinds_of(first), kinds_of(second)
    if kinds is None or others is None or not kinds & others:
        return kinds is not None and others is not None
    if not kinds == others == {"object"} or depth == MAX_DEPTH:
        return False
    properties = [first.get("properties", {}), second.get("properties", {})]
    required = set(first.get("required", [])) & set(second.get("required", []))
    shared = [n for n in required if all(n in each for each in properties)]
    return any(surely_apart(*(p[n] for p in properties), resolve, depth + 1) for n in shared)


def test_random_schemas_are_told_apart_as_a_plain_search_tells_them() -> None:
    told = {True: 0, False: 0}
    for seed in range(3000):
        chance = random.Random(seed)
        root = {"$defs": {name: random_schema(chance) for name in "AB"}}
        first, second = random_schema(chance), random_schema(chance)
        resolve = partial(target_of, root=root, found={})
        budget = SchemaBudget("schema")
        says = Exclusions(resolve, budget).exclude(first, second)
        assert says is surely_apart(first, second, resolve), (seed, root, first, second)
        told[says] += 1
    assert min(told.values()) > 500
