"""DIN, DIEN, SIM, ETA, SDIM and TWIN: what a user's history says about a target."""
