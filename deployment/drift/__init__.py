"""How far newer data are from older ones."""
