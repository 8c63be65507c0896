"""Exported models and what answers a request.

    from merlin_sim.serving.triton.export import export_model           # a model object -> SERVABLE
    from merlin_sim.serving.servable import Servable             # open and check a directory
    from merlin_sim.serving.encoder import EventEncoder   # raw events -> ids
    from merlin_sim.serving.scorer import Scorer                 # ids, events -> probabilities
    from merlin_sim.serving.triton.serve import Server           # behind a Triton

Importing this package imports nothing heavy; ``export``, ``scorer`` import TensorFlow.
"""
