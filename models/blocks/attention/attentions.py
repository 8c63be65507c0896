"""The attentions of DIN by name, for whoever must not wait for TensorFlow."""

ATTENTIONS = ("dot", "activation_unit")
