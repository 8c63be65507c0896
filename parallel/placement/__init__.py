"""Placement of embedding tables: which rank has which rows and columns, and what that costs."""
