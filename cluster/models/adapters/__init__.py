"""Adapters (LoRA) as files: settings, tensors, digests, and the folder that they lie in."""
