from __future__ import annotations

import psutil
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.parallel.ranks import watchdog
from merlin_sim.parallel.ranks.watchdog import first_rank_address

TWO_MACHINES = Ranks(0, 4, 0, 2)


def loopback_interface():
    addresses = psutil.net_if_addrs().items()
    return next(n for n, found in addresses if any(a.address == "127.0.0.1" for a in found))


def test_ranks_of_one_machine_use_the_loopback():
    assert first_rank_address(Ranks(0, 2, 0, 2), {"HOROVOD_GLOO_IFACE": "eth7"}) == "127.0.0.1"


def test_the_interface_that_horovod_uses_is_used():
    environ = {"HOROVOD_GLOO_IFACE": loopback_interface()}
    assert first_rank_address(TWO_MACHINES, environ) == "127.0.0.1"
    with pytest.raises(MerlinSimError, match="HOROVOD_GLOO_IFACE names eth77, an interface with"):
        first_rank_address(TWO_MACHINES, {"HOROVOD_GLOO_IFACE": "eth77"})


def test_else_the_one_that_reaches_the_launcher():
    environ = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.9"}
    assert first_rank_address(TWO_MACHINES, environ).startswith("127.")


def test_else_the_one_that_reaches_a_rank_elsewhere(monkeypatch):
    own = watchdog.socket.gethostname()
    hosts = [own, own, "127.0.0.8", "127.0.0.8"]
    monkeypatch.setattr(watchdog, "gather_objects", lambda value, ranks: hosts)
    assert first_rank_address(TWO_MACHINES, {}).startswith("127.")
