"""The published system's preprocessing scripts under their own names."""
