"""SIM-family click-through-rate models on the NVIDIA Merlin stack."""

__version__ = "0.1.0.dev0"
