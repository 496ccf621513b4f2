"""What quantization costs a model: the same tests on two settings of it, side by side."""
