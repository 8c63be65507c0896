"""Deployment of trained models: which one is better, and which one is served."""
