"""Adapters in a rank's memory: the stacks of their ranks, and what is read into them."""
