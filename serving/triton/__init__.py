"""A servable behind a Triton Inference Server. What runs inside it imports no tritonclient."""

from ...foundation.process_wide import silence_grpc_at_forks

silence_grpc_at_forks()
