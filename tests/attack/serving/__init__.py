"""Servables, and what is asked of them."""
