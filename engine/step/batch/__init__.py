"""What a step computes, and the tensors of it."""
