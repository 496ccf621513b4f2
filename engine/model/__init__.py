"""The decoder: layers, weights, and the batch that a step runs."""
