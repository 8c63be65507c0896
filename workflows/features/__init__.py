"""Features beside ids: numbers, times, lists and vectors of a log, as one YAML file names them."""
