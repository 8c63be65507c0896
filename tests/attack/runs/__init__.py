"""Training runs that are killed, and what they leave."""
