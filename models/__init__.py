"""Tensors only: the DIN, DIEN and SIM models."""
