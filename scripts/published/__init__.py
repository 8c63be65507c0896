"""The published system's scripts under their own names: `python main.py ...` in this folder."""
