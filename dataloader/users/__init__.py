"""Samples made of users' histories while they are read."""
