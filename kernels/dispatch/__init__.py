"""Which implementation runs: by a device's table, or by where the tensors lie."""
