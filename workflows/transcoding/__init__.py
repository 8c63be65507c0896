"""Datasets of other forms become dataset directories."""
