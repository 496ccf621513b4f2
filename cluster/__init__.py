"""What holds a fleet together: the vocabulary, config, membership, errors, telemetry. No torch."""
