"""The processes that hold models: forked from one that has TensorFlow, asked by Triton."""
