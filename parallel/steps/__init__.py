"""One training step: gradients, their averaging, loss scaling, optimizers."""

OPTIMIZERS = ("adam", "lazy_adam", "sgd", "adagrad")
"""The published names of the optimizers; here, so that listing them does not import TensorFlow."""
