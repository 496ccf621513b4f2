"""What both doors are bound by, from a router's options."""

from __future__ import annotations

from cluster.config import RouterOptions
from cluster.world import World
from router.dispatch.time_limits import DefaultTimes
from router.front.body_account import BodyAccount
from router.front.limits import Descriptors, DoorLimits


def bodies_of(options: RouterOptions, world: World) -> BodyAccount:
    """Memory for bodies that are being received or read."""
    return BodyAccount(
        max(options.max_bodies_bytes, options.max_body_bytes),
        within_s=options.header_timeout_s,
        clock=world.clock,
    )


def times_of(options: RouterOptions, world: World) -> DefaultTimes:
    """Of requests that name no deadline, and of their tokens."""
    return DefaultTimes(
        first_token_s=options.default_timeout_s,
        between_tokens_s=options.stream_timeout_s,
        clock=world.clock,
    )


def limits_of(options: RouterOptions, world: World, descriptors: Descriptors) -> DoorLimits:
    """Of one request at a door."""
    return DoorLimits(
        max_body_bytes=options.max_body_bytes,
        request_timeout_s=options.header_timeout_s,
        ping_interval_s=options.ping_interval_s,
        max_connections=descriptors.http,
        clock=world.clock,
    )
