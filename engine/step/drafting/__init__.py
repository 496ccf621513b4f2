"""Guesses of what comes next in a sequence, to be verified by the model: no tensors, no model."""
