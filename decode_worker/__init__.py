"""The decode role: KV intake, continuous batching, the token stream."""
