"""A router tells its options, and no password in them."""

from __future__ import annotations

import json

from cluster.common_options import StoreOptions
from cluster.config import RouterOptions
from cluster.options import option_specs
from router.control.options_message import options_to_wire


def test_every_option_is_told_and_the_stores_password_is_not() -> None:
    options = RouterOptions(port=1, store=StoreOptions(store="redis://me:hunter22@h:1/0"))
    told = {each.name: json.loads(each.value) for each in options_to_wire(options).options}
    assert list(told) == list(option_specs(RouterOptions))
    assert (told["port"], told["fleet_port"], told["reserve_room"]) == (1, None, True)
    assert told["store"] == "redis://***@h:1/0"
