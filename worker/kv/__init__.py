"""The part of a worker's engine process that moves KV blocks: out to readers, in from sources."""
