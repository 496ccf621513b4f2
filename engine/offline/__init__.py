"""An engine without a server, for tools and benchmarks."""
