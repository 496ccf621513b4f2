"""What a route costs, from what was measured."""
