"""Who runs a batch: eagerly, or as captured CUDA graphs."""
