"""The commands that answer what a user should see."""
