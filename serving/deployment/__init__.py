"""What becomes of a model when it is trained: whether it is better, and which one is served."""
