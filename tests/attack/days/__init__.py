"""The attack on what a log may hold, and on the next day's log."""
