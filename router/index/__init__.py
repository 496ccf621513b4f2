"""Which worker holds which prefix."""
