"""The processes of a run: Horovod's collective calls, cores, lost ranks, requests to stop."""
