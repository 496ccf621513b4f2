"""From the conductor to its ranks: the steps' plans and what is ordered with them."""
