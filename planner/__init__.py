"""How many workers a fleet's pools are to have, decided while it runs."""
