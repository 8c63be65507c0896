"""How a ragged column is passed among tensors: as two, named after it, as Merlin's loader has it.

>>> "clicked" + VALUES, "clicked" + OFFSETS
('clicked__values', 'clicked__offsets')
"""

VALUES = "__values"
"""Ends the name of the values of all rows, one after the other."""
OFFSETS = "__offsets"
"""Ends the name of where each row's values begin, and after the last row where they end."""
