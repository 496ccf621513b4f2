"""What a step should compute: pure policy, from counts to a frozen plan."""
