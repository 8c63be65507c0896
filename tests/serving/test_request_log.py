"""What a server keeps of its requests, and how much of it."""

from __future__ import annotations

import itertools
import json
import stat
from pathlib import Path

import numpy as np
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.known_keys import IdsNote, KnownKeys
from merlin_sim.serving.encoder import EncodedEvent
from merlin_sim.serving.request_log import LoggedFile, RequestLog, logged_files
from merlin_sim.serving.settings import LogSettings

IDS = IdsNote({"thing": KnownKeys(60, 60, "digest")}, None)


def event(user, candidates=(1, 2), history=(3, 4, 5)):
    columns = {"thing": np.array(candidates), "price": np.float32([0.5] * len(candidates))}
    return EncodedEvent({"who": np.array([user])}, columns, {"things": np.array(history)}, ("who",))


def keep(settings, events, **given):
    log = RequestLog(settings, 7, IDS, **given)
    for one in events:
        log.add([one], [np.float32([0.25] * one.candidate_count)])
    log.close()
    return log


def test_what_was_asked_and_answered_is_there_again(tmp_path):
    settings = LogSettings(tmp_path / "log", log_share=1.0)
    settings.make_directory()
    keep(settings, [event(5), event(0, (9,), ())], clock=lambda: 1000.0)
    (file,) = logged_files(tmp_path / "log")
    assert (file.version, file.ids) == (7, IDS)
    assert list(file.events()) == [
        {
            "time": 1000.0,
            "user": {"who": [5]},
            "unseen_user": False,
            "targets": {"thing": [1, 2], "price": [0.5, 0.5]},
            "histories": {"things": [3, 4, 5]},
            "scores": [0.25, 0.25],
        },
        {
            "time": 1000.0,
            "user": {"who": [0]},
            "unseen_user": True,
            "targets": {"thing": [9], "price": [0.5]},
            "histories": {"things": []},
            "scores": [0.25],
        },
    ]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o700


def test_a_share_is_kept(tmp_path):
    draws = itertools.cycle([0.0, 0.09, 0.1, 0.5, 0.99])
    keep(LogSettings(tmp_path, log_share=0.1), map(event, range(1, 11)), draw=lambda: next(draws))
    (file,) = logged_files(tmp_path)
    assert [found["user"]["who"] for found in file.events()] == [[1], [2], [6], [7]]
    with pytest.raises(MerlinSimError) as error:
        LogSettings("log", log_share=0.0, log_mib=0)
    assert "`log_share` should be positive, at most 1" in str(error.value)
    assert "`log_mib` should be a positive integer" in str(error.value)


def test_users_are_hashed_by_a_key_that_nobody_has(tmp_path):
    settings = LogSettings(tmp_path, log_share=1.0, hash_users=True)
    keep(settings, [event(5), event(6), event(5)])
    keep(settings, [event(5)])
    second, first = sorted((list(file.events()) for file in logged_files(tmp_path)), key=len)
    five, six, again = (found["user"] for found in first)
    assert five == again != six and len(five) == 32 and second[0]["user"] not in (five, six)
    assert "who" not in (logged_files(tmp_path)[0].path).read_text()


def test_the_bytes_stay_within_their_bound_and_the_oldest_go(tmp_path):
    settings = LogSettings(tmp_path, log_share=1.0, log_mib=1)
    times = itertools.count(1000)
    long = event(1, tuple(range(1, 50)) * 20, tuple(range(1, 60)) * 50)
    keep(settings, [long] * 200, clock=lambda: next(times))
    files = logged_files(tmp_path)
    total = sum(file.path.stat().st_size for file in files)
    assert (1 << 20) * 0.6 < total <= 1 << 20 and len(files) > 2
    kept = [found["time"] for file in files for found in file.events()]
    # The newest without a gap; the first are gone.
    assert kept == sorted(kept) and kept[0] > 1010 and len(kept) < 200
    assert len(kept) == pytest.approx(kept[-1] - kept[0] + 1, abs=len(files))


def test_a_log_hurts_nobody_where_it_cannot_be_written_or_its_files_go(
    tmp_path, monkeypatch, capfd
):
    gone = [tmp_path / f"requests-{number}.jsonl" for number in range(3)]
    with monkeypatch.context() as during:  # another version removed them just now
        during.setattr(Path, "glob", lambda *_: iter(gone))
        keep(LogSettings(tmp_path, log_share=1.0), [event(1)])
    assert capfd.readouterr().err == ""
    (file,) = logged_files(tmp_path)
    assert len(list(file.events())) == 1
    keep(LogSettings(tmp_path / "gone", log_share=1.0), [event(1), event(2)])
    said = capfd.readouterr().err
    assert said.count("requests are not kept any more: No such file or directory") == 1


def test_a_line_that_is_being_written_is_left_out_and_damage_is_named(tmp_path):
    keep(LogSettings(tmp_path, log_share=1.0), [event(1), event(2)])
    (file,) = logged_files(tmp_path)
    text = file.path.read_text()
    file.path.write_text(text[:-5])
    assert [found["user"]["who"] for found in file.events()] == [[1]]
    lines = text.splitlines()
    file.path.write_text("\n".join([lines[0], "[1]", lines[2]]) + "\n")
    with pytest.raises(MerlinSimError, match=r"jsonl, line 2: expected an object"):
        list(file.events())
    for head in ("nothing", "{}", json.dumps({**json.loads(lines[0]), "format": 2})):
        file.path.write_text(head + "\n")
        with pytest.raises(MerlinSimError, match="line 1: expected"):
            LoggedFile.open(file.path)
    file.path.unlink()
    with pytest.raises(MerlinSimError, match="expected logged requests"):
        logged_files(tmp_path)
    with pytest.raises(MerlinSimError, match="expected a directory that"):
        logged_files(tmp_path / "nothing")
