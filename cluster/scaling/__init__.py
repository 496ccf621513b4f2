"""How many workers a fleet's pools have, and how that is changed, wherever they run."""
