"""A servable behind a Triton Inference Server. What runs inside it imports no tritonclient."""
