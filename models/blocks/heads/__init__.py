"""From vectors to a logit, and its losses."""
