"""The KV pool: its blocks, who holds them, what is cached, how much fits."""
