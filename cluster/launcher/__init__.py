"""How a fleet's processes are started: one interface, one implementation per place."""
