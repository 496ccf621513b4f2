"""Checkpoints that hold no model, but a head that guesses what one will say."""
