"""The adapters that a worker offers: their folder, watched, and what its engine has of them."""
