"""Files and directories that are there whole or not at all, and files that know their digest."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from merlin_sim.foundation.digest import DIGEST, require_own_digest, with_own_digest
from merlin_sim.foundation.exceptions import MerlinSimError, Stopped
from merlin_sim.foundation.files import check_apart, staged_directory


def test_a_directory_appears_when_the_block_ends_well(tmp_path):
    target = tmp_path / "deep" / "dataset"
    with staged_directory(target) as directory:
        (directory / "a").write_text("a")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["a"]
    assert [path.name for path in target.parent.iterdir()] == ["dataset"]


@pytest.mark.parametrize(
    "error, seen",
    [(ValueError, ValueError), (KeyboardInterrupt, Stopped), (MerlinSimError, MerlinSimError)],
)
def test_an_exception_leaves_nothing(tmp_path, error, seen):
    with pytest.raises(seen), staged_directory(tmp_path / "dataset") as directory:
        (directory / "a").write_text("a")
        raise error("stop")
    assert not list(tmp_path.iterdir())
    with pytest.raises(MerlinSimError, match="/full: No space left on device.*no output"):
        with staged_directory(tmp_path / "dataset"):
            raise OSError(28, "No space left on device", "/full")
    (tmp_path / "file").write_text("")
    with pytest.raises(MerlinSimError, match="file.dataset: File exists"):
        with staged_directory(tmp_path / "file" / "dataset"):
            pass


def test_a_directory_with_something_in_it_is_replaced_only_on_request(tmp_path):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "old").write_text("old")
    with pytest.raises(MerlinSimError, match="--overwrite"), staged_directory(tmp_path / "dataset"):
        pass
    assert (tmp_path / "dataset" / "old").exists()
    with staged_directory(tmp_path / "dataset", overwrite=True) as directory:
        (directory / "new").write_text("new")
    assert [path.name for path in (tmp_path / "dataset").iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]


def test_an_interrupt_after_the_directory_has_its_name_says_that_it_was_made(tmp_path, monkeypatch):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "old").write_text("old")
    remove, interrupts = shutil.rmtree, [KeyboardInterrupt]

    def interrupted(path, **options):
        if str(path).endswith(".replaced") and interrupts:
            raise interrupts.pop()
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(Stopped, match="The output directory was made"):
        with staged_directory(tmp_path / "dataset", overwrite=True) as directory:
            (directory / "new").write_text("new")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("**/*")] == [
        "dataset", "dataset/new",
    ]  # fmt: skip


@pytest.mark.parametrize("output", ["raw", ".", "link"])
def test_what_is_read_is_never_replaced(tmp_path, output):
    source = tmp_path / "raw"
    source.mkdir()
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(MerlinSimError, match="holds nothing of what is read"):
        check_apart(tmp_path / output, [None, source])
    check_apart(source / "dataset", [source])
    check_apart(tmp_path / "raw2", [source])


KILLED = """
import sys, time, pathlib
from merlin_sim.foundation.files import staged_directory
with staged_directory(pathlib.Path(sys.argv[1])) as directory:
    (directory / "half").write_text("half")
    print("writing", flush=True)
    time.sleep(300)
"""


def test_a_killed_run_leaves_no_directory_and_the_next_one_says_so(tmp_path):
    target = tmp_path / "dataset"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(target)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "writing\n"
    with pytest.raises(MerlinSimError, match="another run"), staged_directory(target):
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not target.exists()

    said = []
    with staged_directory(target, say=said.append) as directory:
        assert [path.name for path in directory.iterdir()] == [".lock"]
    assert len(said) == 1 and "did not finish" in said[0]
    assert target.is_dir() and not list(target.iterdir())


class AtEachStep:
    """Calls something just before the n-th file system operation of a block.

    An audit hook stays for good: it does nothing when it is not armed.
    """

    STEPS = ("open", "os.", "shutil.", "fcntl.", "glob.")

    def __init__(self):
        self.left = None
        self.action = None
        sys.addaudithook(self._hook)

    def _hook(self, event, arguments):
        if self.left is None or not event.startswith(self.STEPS):
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            self.action()

    @contextlib.contextmanager
    def armed(self, number, action):
        """Yield a function that tells whether the action was called."""
        self.left, self.action = number, action
        try:
            yield lambda: self.left is None
        finally:
            self.left = None


AT_EACH_STEP = AtEachStep()


def write_dataset(target, name, overwrite, ended):
    """Write a directory with one file of that name; ``ended`` gets the name when it is done."""
    try:
        with staged_directory(target, overwrite=overwrite) as directory:
            (directory / name).write_text(name)
    except MerlinSimError as error:
        assert "another run" in str(error) or "not empty" in str(error), error
    else:
        ended.append(name)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("found", ["nothing", "old", "unfinished", "half replaced"])
def test_two_runs_never_lose_a_dataset_that_one_of_them_finished(tmp_path, overwrite, found):
    """A second run comes and goes at each single step of the first."""
    number, interrupted = 0, True
    while interrupted:
        target, ended = tmp_path / str(number) / "dataset", []
        if found != "nothing":
            suffix = {"old": "", "unfinished": ".partial", "half replaced": ".replaced"}[found]
            index = target.with_name(f"dataset{suffix}")
            index.mkdir(parents=True)
            (index / "old").write_text("old")
        has_old = found in ("old", "half replaced")

        def second(target=target, ended=ended):
            write_dataset(target, "second", overwrite, ended)

        with AT_EACH_STEP.armed(number, second) as was_called:
            write_dataset(target, "first", overwrite, ended)
            interrupted = was_called()
        kept = ended[-1] if ended else "old"
        assert has_old or ended, number
        assert [path.name for path in target.iterdir()] == [kept], (number, ended)
        assert [path.name for path in target.parent.iterdir()] == ["dataset"], (number, ended)
        if not overwrite:
            assert len(ended) == (0 if has_old else 1), (number, ended)
        number += 1
    assert number > 5


DOCUMENT = {"format": 2, "name": "été \U0001f600", "rules": {"seed": 0, "none": {}}, "list": []}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(with_own_digest(DOCUMENT), encoding="utf-8")
    return path


def test_what_is_written_is_the_document_and_its_digest_last(path):
    require_own_digest(path)
    read = json.loads(path.read_text(encoding="utf-8"))
    assert list(read) == [*DOCUMENT, DIGEST]
    assert {name: read[name] for name in DOCUMENT} == DOCUMENT
    command = f"head -n -2 {path} | sha256sum"  # as a person can work it out
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == read[DIGEST]
    path.write_text(json.dumps(DOCUMENT, indent=2))
    with pytest.raises(MerlinSimError, match="expected its digest.* It has none"):
        require_own_digest(path)


def test_every_changed_bit_shows(path):
    content = path.read_bytes()
    for index in range(len(content)):
        path.write_bytes(content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :])
        with pytest.raises(MerlinSimError, match=r"file\.json: "):
            require_own_digest(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: json.dumps(json.loads(text)),
        lambda text: text.replace("\n}\n", ',\n  "more": 1\n}\n'),
        lambda text: text.replace('  "format"', '  "sha256_of_the_lines_above": "",\n  "format"'),
    ],
)
def test_another_text_of_the_same_meaning_shows(path, change):
    path.write_bytes(change(path.read_text(encoding="utf-8")).encode())
    with pytest.raises(MerlinSimError, match="not as it was written|It has none"):
        require_own_digest(path)
