"""From what a client wants its answer to be, to a grammar: pure functions, limits first."""
