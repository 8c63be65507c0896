"""The feed, the loop, Horovod, precision, checkpoints, metrics and measurements."""
