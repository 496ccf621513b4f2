"""What every process of a fleet needs: its life, signals, its parent, its start."""
