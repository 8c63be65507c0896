"""The families of models: each file with a ``FAMILY`` is one. Importing it loads no TensorFlow."""
