"""Which rank has which expert while a group serves: measured, planned, changed layer by layer."""
