"""Names of a batch's tensors that are no columns.

A ragged column is passed as two tensors, named after it, as Merlin's loader has it:

>>> "clicked" + VALUES, "clicked" + OFFSETS
('clicked__values', 'clicked__offsets')
"""

VALUES = "__values"
"""Ends the name of the values of all rows, one after the other."""
OFFSETS = "__offsets"
"""Ends the name of where each row's values begin, and after the last row where they end."""
HISTORY_SUMMARY = "history_summary"
"""[rows, prototypes x (dim + 1)], float32: what a model summed up of each row's whole history, of
which the batch then brings the newest positions alone.
"""
HISTORY_END = "history_end"
"""[users, windows], whole numbers, in a batch of users x candidates: a candidate sees the positions
before its end, as many as a history of the dataset has at most, never one at or after it. Each
window is of as many candidates, those that follow each other: one each where there are as many
windows as candidates, two where a positive and its negative see the same. A batch with this column
may have fillers, candidates of weight 0, where a user has fewer than others.
"""
