"""The families of models. Importing it loads no TensorFlow."""
