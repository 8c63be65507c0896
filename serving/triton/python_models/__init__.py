"""What runs inside Triton's Python backend: its models, and what they share."""
