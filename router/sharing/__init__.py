"""What the routers of one fleet tell each other, through a store that all of them reach."""
