"""How a batch of users x candidates says what each candidate may see of its user's history."""

HISTORY_END = "history_end"
"""[users, candidates], whole numbers: a candidate sees the places before its end, as many as a
history of the dataset has at most, never a place at or after it. A batch with this column may have
fillers, candidates of weight 0, where a user has fewer than others."""
