"""What one day's dataset keeps for the next one, and how the next one goes on from it."""
