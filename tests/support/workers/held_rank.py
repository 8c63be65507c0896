"""Runs a command; of two ranks holds the second one at a gate first.

python held_rank.py until-first-waits|for-ever COMMAND ...
"""

from __future__ import annotations

import os
import sys
import time

from merlin_sim.parallel.ranks.arrival import Rendezvous

if os.environ["HOROVOD_RANK"] == "1":
    rendezvous = Rendezvous.of_launcher(os.environ)
    while sys.argv[1] == "for-ever" or not rendezvous.has_arrived(0):
        time.sleep(0.1)
os.execv(sys.argv[2], sys.argv[2:])
