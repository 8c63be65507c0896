"""The launcher ends as its ranks do, though horovodrun ends with 1 whatever they end with."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import quick_horovodrun

ROOT = Path(__file__).parents[2]
SCRIPTS = ("scripts/run_model.sh", "parallel/ranks/launch_ranks.sh")
SCRIPTS += ("parallel/ranks/note_exit_code.sh",)
HOROVODRUN = Path(sys.executable).parent / "horovodrun"
LIMIT = 280

RANK = """#!/usr/bin/env bash
trap 'exit 75' TERM
{work}
echo "started $HOROVOD_RANK" >> "{notes}"
for _ in $(seq 3000); do sleep 0.1; done
"""


SKIP = 'while [ "${1##*/}" != note_exit_code.sh ]; do shift; done\n'
"""Of the words of a launcher what a rank begins with is left."""


def stub(path: Path, text: str) -> Path:
    """A program of a few lines."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def noting(path: Path, code: int = 0) -> Path:
    """A program that notes its words in a file beside it, and ends with a code."""
    words = path.with_name("words")
    return stub(path, f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {words}\nexit {code}\n")


def run(words: list[str], **environment: str) -> subprocess.CompletedProcess:
    done = {**os.environ, **environment}
    return subprocess.run(
        words, env=done, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def launcher(tmp_path: Path, work: str, horovodrun: Path = HOROVODRUN) -> list[str]:
    """The launcher beside a `merlin-sim` that does some shell work and waits for SIGTERM."""
    checkout = tmp_path / "checkout"
    bin_folder = checkout / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    for name in SCRIPTS:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    (bin_folder / "horovodrun").symlink_to(horovodrun)
    stub(bin_folder / "merlin-sim", RANK.format(notes=tmp_path / "notes", work=work))
    return [str(checkout / SCRIPTS[0]), "--data_path", str(tmp_path), "--gpus", "2"]


@pytest.mark.slow
@pytest.mark.horovod
@pytest.mark.timeout(LIMIT)
def test_the_code_of_the_rank_that_ended_first_counts(tmp_path):
    """With horovodrun as it is, which looks at what Horovod was built with."""
    done = run(launcher(tmp_path, '[ "$HOROVOD_RANK" = 1 ] && exit 2'))
    assert done.returncode == 2, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.horovod
@pytest.mark.timeout(LIMIT)
def test_a_run_that_is_stopped_saves_and_ends_with_75(tmp_path):
    """Each rank has the time it needs, where this horovodrun would kill it after one second."""
    save = f'trap - TERM; sleep $(( HOROVOD_RANK ? 1 : 3 )); echo saved >> "{tmp_path}/saved"'
    process = subprocess.Popen(
        launcher(tmp_path, f"trap '{save}; exit 75' TERM", quick_horovodrun(tmp_path)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        notes, end = tmp_path / "notes", time.monotonic() + LIMIT
        while not notes.exists() or len(notes.read_text().splitlines()) < 2:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 75
        assert (tmp_path / "saved").read_text() == "saved\n" * 2
    finally:
        process.kill()


@pytest.mark.parametrize("has_mpirun", [True, False])
def test_horovodrun_need_not_find_out_what_it_can_use_where_there_is_no_mpirun(
    tmp_path, has_mpirun
):
    words = launcher(tmp_path, "", noting(tmp_path / "noting"))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "dirname", "mktemp", "rm"):
        (programs / name).symlink_to(shutil.which(name))
    if has_mpirun:
        (programs / "mpirun").symlink_to(tmp_path / "noting")
    assert run(words, PATH=str(programs)).returncode == 0
    noted = (tmp_path / "words").read_text().splitlines()
    assert noted[:4] == ["-np", "2", "-H", "localhost:2"]
    assert (noted[4] == "--gloo") != has_mpirun
    assert Path(noted[4 if has_mpirun else 5]).name == "note_exit_code.sh"


def by_mpiexec(tmp_path: Path, work: str = "") -> subprocess.CompletedProcess:
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return run(launcher(tmp_path, work), PATH=path, LAUNCHER="mpi")


@pytest.mark.parametrize("code", [0, 75])
def test_mpiexec_is_started_as_the_published_texts_start_it_and_its_code_counts(tmp_path, code):
    noting(tmp_path / "mpiexec", code)
    assert by_mpiexec(tmp_path).returncode == code
    noted = (tmp_path / "words").read_text().splitlines()
    assert noted[:5] == ["--allow-run-as-root", "--bind-to", "socket", "-np", "2"]
    assert noted[5].endswith("/note_exit_code.sh")
    assert noted[7].endswith("/merlin-sim") and noted[8] == "train"


def test_of_mpiexec_a_killed_rank_is_one_that_was_lost(tmp_path):
    """Open MPI ends with 137 then, whatever the other ranks end with."""
    stub(tmp_path / "mpiexec", '#!/bin/sh\nshift 5\n"$@"\n')
    done = by_mpiexec(tmp_path, "kill -9 $$")
    assert done.returncode == 70, done.stdout + done.stderr


@pytest.mark.parametrize(("work", "code"), [("exit 75", 75), ("exit 0", 0), ("kill -9 $$", 70)])
def test_a_launcher_that_ends_well_hides_nothing(tmp_path, work, code):
    """horovodrun that was told to stop may lose what its ranks ended with: 0 takes its place."""
    careless = stub(tmp_path / "careless", f'#!/bin/sh\n{SKIP}"$@"\nexit 0\n')
    done = run(launcher(tmp_path, work, careless))
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize(("first", "code"), [(9, 1), (75, 70), (137, 70)])
def test_a_rank_that_the_launcher_stops_as_it_starts_hides_no_earlier_code(tmp_path, first, code):
    """Rank 0 is stopped before it can trap the signal, as the launcher does once rank 1 ended."""
    of_each = 'for HOROVOD_RANK in 1 0; do export HOROVOD_RANK; "$@"; done\nexit 1\n'
    in_turn = stub(tmp_path / "in_turn", f"#!/bin/bash\n{SKIP}{of_each}")
    work = f'[ "$HOROVOD_RANK" = 1 ] && exit {first}\ntrap - TERM; kill -TERM $$'
    done = run(launcher(tmp_path, work, in_turn))
    assert done.returncode == code, done.stdout + done.stderr


def test_without_horovod_it_says_how_to_get_it(tmp_path):
    done = run(launcher(tmp_path, "", tmp_path / "nothing"))
    assert done.returncode == 2
    assert "--gpus 2 needs Horovod, which is not installed: HOROVOD=1 make setup" in done.stderr
