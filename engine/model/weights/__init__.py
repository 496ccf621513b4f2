"""From checkpoint files to typed weights."""
