"""Appends to a store until it is killed, and says of each interaction when it is kept.

Usage: appending.py STORE USER FIRST
"""

from __future__ import annotations

import sys

from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import Interaction

address, user, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(address)
for number in range(first, first + 1_000_000):
    store.append([Interaction(user, str(number), number)])
    print(number, flush=True)
