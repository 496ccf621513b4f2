"""What holds a fleet together: the vocabulary, config, membership, errors, telemetry. No torch."""

VERSION = "0.1.0"
"""Of the project."""
