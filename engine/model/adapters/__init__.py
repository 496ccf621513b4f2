"""Adapters in a rank's memory: the stacks of their LoRA ranks, and what is read into them."""
