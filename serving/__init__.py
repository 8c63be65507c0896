"""Exported models and what answers a request.

    from merlin_sim.serving.triton.export import export_model           # a model object -> SERVABLE
    from merlin_sim.serving.servable import Servable             # open and check a directory
    from merlin_sim.serving.encoder import EventEncoder   # raw events -> ids
    from merlin_sim.serving.scorer import Scorer                 # ids, events -> probabilities
    from merlin_sim.serving.triton.serve import Server           # behind a Triton

Importing this package imports nothing heavy; ``export``, ``scorer`` import TensorFlow.
"""

import os

# A server starts processes by fork and exec: what gRPC does and says at a fork helps nobody. It
# reads this when it is imported, as it is with Merlin's schema.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
