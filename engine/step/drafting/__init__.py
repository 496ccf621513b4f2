"""Guesses of what comes next in one sequence, and what became of them: no tensors, no model."""
