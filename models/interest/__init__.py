"""DIN, DIEN and SIM: what a user's history says about a target."""
