"""The password of a server's store of histories: nobody else reads it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from in_process import answer
from redis_server import redis_server
from serving_process import reached, serving
from triton_calls import post

from merlin_sim.serving.histories.open_store import open_store

pytest.importorskip("pytriton")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SECRET = "the-password-of-the-store"


def test_a_stores_password_is_nowhere_to_be_read(servable, events, tmp_path):
    """Not on command lines, in configurations, messages or answers, and none when it is gone."""
    with redis_server(tmp_path / "r") as (plain, redis):
        import redis as client

        path = plain.removeprefix("unix://").partition("?")[0]
        client.Redis(unix_socket_path=path).config_set("requirepass", SECRET)
        address = f"unix://:{SECRET}@{path}?db=0"
        open_store(address, create=True).close()
        (tmp_path / "address").write_text(address)
        refused = answer("histories", "show", address, "--user", "A")
        assert refused.returncode == 2 and SECRET not in refused.stderr
        assert "@FILE" in refused.stderr
        words = ["--histories", f"@{tmp_path / 'address'}", "--no_standby"]
        with serving(servable.path, *words) as process:
            server = reached(process)
            found = psutil.Process(process.pid)
            tree = [found, *found.children(recursive=True)]
            reported = [line for one in tree for line in one.cmdline()]
            reported += [str(answered(server, events[0])[1])]
            for config in Path("/tmp").glob("merlin-sim-serve-*/*/repository/*/config.pbtxt"):
                with suppress(FileNotFoundError):  # of another server, which ends just now
                    reported.append(config.read_text())
            redis.kill()
            redis.wait(60)
            event = {key: value for key, value in events[0].items() if key != "history"}
            status, found = answered(server, event)
            assert status == 503 and "cannot be read" in str(found)
            reported.append(str(found))
            assert answered(server, events[0])[0] == 200
            sent = {"user": "A", "item": "B", "time": 1}
            status, found = post(server.http_port, "/histories", sent)
            assert status == 503
            reported.append(str(found))
            process.terminate()
            assert process.wait(200) == 0
        reported += process.said
    assert any("unix://" in line for line in process.said)  # the log says which store it is
    assert not [line for line in reported if SECRET in line]


def answered(server, event):
    tensor = {"name": "event", "shape": [1, 1], "datatype": "BYTES", "data": [json.dumps(event)]}
    return post(server.http_port, "/v2/models/events/infer", {"inputs": [tensor]})
