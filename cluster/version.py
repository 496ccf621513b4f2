"""The one version of the project and of its wire protocol."""

VERSION = "0.1.0"

PROTOCOL_VERSION = 2
"""Bumped when workers of two versions can no longer hand a request over; part of the pairing."""
