"""KV events of other engines, in words of our own index."""
