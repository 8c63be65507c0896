"""A registry on the file system: versions that stay as they are, and a link to the current one.

    REGISTRY/
      versions/000001/       a servable, as it was exported
      versions/000001.json   where it came from; written last: without it there is no version
      promotions.json        the versions that were current, one after the other
      current                a link to the version that is served; changed by one rename

The link alone says what is current. Whatever is killed at any moment leaves a link to a whole
version; what it left half done is put right by the next command.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...foundation.digest import DIGEST, require_own_digest, sha256, with_own_digest
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import read_json, sync_directory, write_replacing, write_text_atomically
from ...training.reports.run_results import read_results
from ..servable import MANIFEST, Servable, read_manifest, unless_held

FORMAT = 1
METRICS = ("test_auc", "test_log_loss", "test_gauc", "test_calibration_error", "time_to_train")
"""What is kept of a run's end."""


class RegistryError(MerlinSimError):
    """A registry is missing, damaged, or asked for what it does not have."""


@dataclass(frozen=True)
class Version:
    """A version of a registry, and what is known of it."""

    number: int
    added: str
    """When, in UTC."""
    model_type: str
    merlin_sim: str
    """The version of the code that exported it."""
    checkpoint: Mapping[str, Any]
    """What the servable's manifest says of it: name, digest, the dataset's fingerprint."""
    servable_sha256: str
    metrics: Mapping[str, float]
    """Of the run that trained it; nothing where none was named."""
    gate: Mapping[str, Any] | None
    """Verdict and reasons of its gate; None where there was none."""

    @classmethod
    def parse(cls, path: Path) -> Version:
        """Read the file beside a version."""
        document = read_json(path, "JSON, a version of a registry", RegistryError)
        require_own_digest(path, RegistryError)
        try:
            if document.pop("format") != FORMAT:
                raise KeyError("format")
            document.pop(DIGEST)
            return cls(**document)
        except (KeyError, TypeError, AttributeError) as error:
            raise RegistryError(
                f"{path}: expected a version of format {FORMAT}. Received: {error}"
            ) from error

    @property
    def passed(self) -> bool | None:
        """Whether its gate let it pass; None where there was none."""
        return None if self.gate is None else bool(self.gate["passed"])


def now() -> str:
    """Return the time in UTC as it is written down."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def metrics_of(results: Path, steps: int | None) -> dict[str, float]:
    """Return what a run measured of the checkpoint after so many steps, or at its end."""
    run = read_results(results)
    if not run.last:
        raise RegistryError(f"{results}: expected a run that has ended; its log has no result.")
    values = {name: run.metric(name) for name in METRICS}
    for epoch in run.epochs:
        if steps is not None and epoch.get("step") == steps:
            values |= {name: epoch[name] for name in METRICS if name in epoch}
    return {name: value for name, value in values.items() if value is not None}


def gate_of(path: Path, servable_sha256: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Read the verdict of a gate, which must have judged this servable or its checkpoint."""
    document = read_json(path, "JSON, what `merlin-sim gate` wrote", RegistryError)
    require_own_digest(path, RegistryError)
    try:
        challenger = document["challenger"]
        found = {
            "passed": bool(document["passed"]),
            "reasons": list(document["reasons"]),
            "current": document["current"],
            "dataset": document["dataset"],
        }
    except (KeyError, TypeError) as error:
        raise RegistryError(f"{path}: expected what `merlin-sim gate` wrote.") from error
    digest = manifest["checkpoint"].get("sha256")
    is_this = challenger.get("servable_sha256") == servable_sha256
    if not is_this and (digest is None or challenger.get("checkpoint_sha256") != digest):
        raise RegistryError(
            f"{path}: expected the gate of this model. Received: that of "
            f"{json.dumps(challenger.get('path'))}, which is another {MANIFEST} and checkpoint."
        )
    return found


VERSIONS = "versions"
PROMOTIONS = "promotions.json"
CURRENT = "current"
LOCK = ".lock"
_NAME = re.compile(r"\d{6,}")


class Registry:
    """A directory of versions, made by the first :meth:`add`.

    Commands that change it take its lock, which ends with the process that holds it. Readers need
    none: they follow the link.
    """

    def __init__(self, directory: Path) -> None:
        """Name the directory; nothing is read or written yet."""
        self.directory = directory

    def add(self, servable: Path, run: Path | None = None, gate: Path | None = None) -> Version:
        """Copy a servable into the registry as its next version; every file of it is checked.

        The metrics of the run that trained it, and the verdict in its ``gate.json``, are kept.
        """
        opened = Servable.open(servable)
        manifest = opened.manifest
        digest = sha256(opened.path / MANIFEST)
        metrics = {} if run is None else metrics_of(run, manifest["checkpoint"].get("steps"))
        verdict = None if gate is None else gate_of(gate, digest, manifest)
        with self._changing(makes=True):
            number = 1 + max(self._numbers(), default=0)
            path = self.path_of(number)
            partial = path.with_name(f".{path.name}.partial")
            try:
                shutil.copytree(opened.path, partial)
                read_manifest(partial)  # what was copied, not what was looked at
                _sync_tree(partial)
                os.rename(partial, path)
                version = Version(
                    number, now(), manifest["model"]["type"], manifest["merlin_sim"],
                    manifest["checkpoint"], digest, metrics, verdict,
                )  # fmt: skip
                self._write(path.with_suffix(".json"), {"format": FORMAT, **asdict(version)})
            except (OSError, shutil.Error) as error:
                reason = getattr(error, "strerror", None) or error
                raise RegistryError(
                    f"{servable} was not added to {self.directory}: {reason}."
                ) from error
        return version

    def versions(self) -> list[Version]:
        """Return all versions, oldest first."""
        folder = self.directory / VERSIONS
        if not folder.is_dir():
            raise RegistryError(f"{self.directory}: expected a registry; `add` makes one.")
        files = sorted(folder.glob("*.json"), key=lambda file: (len(file.name), file.name))
        return [Version.parse(file) for file in files if _NAME.fullmatch(file.stem)]

    def version(self, number: int) -> Version:
        """Return one version."""
        known = {version.number: version for version in self.versions()}
        if number not in known:
            there = ", ".join(map(str, known)) or "none"
            raise RegistryError(
                f"{self.directory}: expected one of its versions ({there}). Received: {number}"
            )
        return known[number]

    def _numbers(self) -> list[int]:
        """Return the numbers that are taken, by a version or by what is left of one."""
        names = (path.stem for path in (self.directory / VERSIONS).iterdir())
        return [int(name) for name in names if _NAME.fullmatch(name)]

    @property
    def current(self) -> int | None:
        """The number of the version that is served; None before the first promotion."""
        try:
            target = Path(os.readlink(self.directory / CURRENT))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RegistryError(
                f"{self.directory / CURRENT}: expected a link to a version: {error.strerror}."
            ) from error
        if target.parent != Path(VERSIONS) or not _NAME.fullmatch(target.name):
            raise RegistryError(
                f"{self.directory / CURRENT}: expected a link to a version. Received: {target}"
            )
        return int(target.name)

    def path_of(self, number: int) -> Path:
        """Return the directory of a version's servable."""
        return self.directory / VERSIONS / f"{number:06d}"

    def promote(self, number: int, force: bool = False) -> None:
        """Let a version, every file of which is checked, be the current one.

        With ``force`` a gate that it did not pass is overruled.
        """
        with self._changing():
            version = self.version(number)
            read_manifest(self.path_of(number))
            if version.passed is False and not force:
                reasons = "\n".join(f"  {reason}" for reason in (version.gate or {})["reasons"])
                raise RegistryError(
                    f"version {number} did not pass its gate; --force promotes it all the same:\n"
                    f"{reasons}"
                )
            before = self.were_current()
            if before[-1:] != [number]:
                # The list first: a version that it names and the link does not was never current.
                self._write_promotions([*before, number])
                self._link(number)

    def rollback(self) -> tuple[int, int]:
        """Let the version be current that was before; return it, and the one that it replaces."""
        with self._changing():
            were = self.were_current()
            if len(were) < 2:
                raise RegistryError(
                    f"{self.directory}: expected a version that was current before. Received: "
                    f"{were or 'no promotion yet'}"
                )
            read_manifest(self.path_of(were[-2]))
            self._link(were[-2])
            self._write_promotions(were[:-1])
            return were[-2], were[-1]

    def prune(self, keep: int, say: Callable[[str], None] = lambda message: None) -> list[int]:
        """Remove old versions; return which.

        The ``keep`` newest stay, the current one, the one that a rollback would go to, and those
        that a server of this machine has, as its canary.
        """
        removed: list[int] = []
        with self._changing(), contextlib.ExitStack() as stack:
            known = [version.number for version in self.versions()]
            were = self.were_current()
            kept = {*known[-keep:], *were[-2:]}
            for number in known:
                if number in kept:
                    continue
                if stack.enter_context(unless_held(self.path_of(number))):
                    removed.append(number)
                else:
                    say(f"version {number} stays: a server has it")
            if removed:
                left = [number for number in were if number not in removed]
                again = [i for i in range(1, len(left)) if left[i] == left[i - 1]]
                self._write_promotions([n for i, n in enumerate(left) if i not in again])
            for number in removed:
                self.path_of(number).with_suffix(".json").unlink()  # from here on it is no version
            sync_directory(self.directory / VERSIONS)
            for number in removed:
                shutil.rmtree(self.path_of(number), ignore_errors=True)
        return removed

    def were_current(self) -> list[int]:
        """Return the versions that were current, the one that is last.

        What a rollback left is not among them.
        """
        current = self.current
        if current is None:
            return []
        path = self.directory / PROMOTIONS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["versions"]
            numbers = [int(number) for number in found]
        except (OSError, ValueError, KeyError, TypeError):
            return [current]  # the link is what counts; nothing is known of what was before
        # A change that was killed halfway leaves a list that is one ahead of the link.
        while numbers and numbers[-1] != current:
            numbers.pop()
        return numbers or [current]

    def _write_promotions(self, numbers: list[int]) -> None:
        write_text_atomically(self.directory / PROMOTIONS, json.dumps({"versions": numbers}) + "\n")

    def _link(self, number: int) -> None:
        link = self.directory / f".{CURRENT}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(link)
        os.symlink(Path(VERSIONS) / f"{number:06d}", link)
        os.replace(link, self.directory / CURRENT)
        sync_directory(self.directory)

    @staticmethod
    def _write(path: Path, document: dict[str, Any]) -> None:
        write_replacing(path, with_own_digest(document))
        sync_directory(path.parent)

    @contextlib.contextmanager
    def _changing(self, makes: bool = False) -> Iterator[None]:
        """Hold the lock, and put right what a killed process left."""
        try:
            if makes:
                (self.directory / VERSIONS).mkdir(parents=True, exist_ok=True)
            elif not (self.directory / VERSIONS).is_dir():
                raise RegistryError(f"{self.directory}: expected a registry; `add` makes one.")
            with open(self.directory / LOCK, "w") as lock:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(lock, fcntl.LOCK_EX)
                self._tidy()
                yield
        except OSError as error:
            raise RegistryError(
                f"{self.directory} cannot be written: {error.strerror or error}"
            ) from error

    def _tidy(self) -> None:
        """Remove what is of no version: copies that were not finished, and removals."""
        for left in self.directory.glob(f".{PROMOTIONS}.*"):
            left.unlink()
        current = self.current
        for path in (self.directory / VERSIONS).iterdir():
            is_partial = path.name.startswith(".")
            orphan = _NAME.fullmatch(path.name) and not path.with_suffix(".json").exists()
            if orphan and current is not None and path == self.path_of(current):
                continue  # its story was removed by hand; it is served all the same
            if is_partial and path.is_file():
                path.unlink()
            elif (is_partial or orphan) and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)


def _sync_tree(directory: Path) -> None:
    for folder, _, names in os.walk(directory):
        for name in names:
            with open(Path(folder) / name, "rb") as file:
                os.fsync(file.fileno())
        sync_directory(Path(folder))
