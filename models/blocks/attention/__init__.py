"""How a target looks at a history."""
