"""Every kernel in plain torch: slow, obvious, and what the others are tested against."""
