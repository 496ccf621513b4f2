"""KV blocks between workers: NIXL and the in-process loopback. No scheduler, no model."""
