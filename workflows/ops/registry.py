"""Which operators a saved workflow may name, and what they tell of themselves.

An operator is saved as its name and what ``get_config()`` gives, the arguments that make it again.
One that learns in ``fit`` has ``get_learned(directory)`` as well, which may write files there. All
of it is JSON and parquet, and a file that somebody changed can name no code that was not
registered.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

from nvtabular.ops import Operator, StatOperator

from ...foundation import digest
from ...foundation.exceptions import MerlinSimError

OperatorClass = TypeVar("OperatorClass", bound="type[Operator]")
LEARNING = ("get_learned", "set_learned")
_registered: dict[str, type[Operator]] = {}


@overload
def register(cls: OperatorClass, name: str | None = None) -> OperatorClass: ...


@overload
def register(
    cls: None = None, name: str | None = None
) -> Callable[[OperatorClass], OperatorClass]: ...


def register(cls: Any = None, name: str | None = None) -> Any:
    """Let saved workflows name an operator; as a decorator or called.

    >>> from merlin_sim.workflows.ops.registry import register
    >>> @register(name="example.Halve")
    ... class Halve(Operator):
    ...     def get_config(self):
    ...         return {}

    Args:
        cls: The operator's class. It has ``get_config() -> dict``, JSON from which
            ``from_config``, or else the constructor, makes it again. One that learns has
            ``get_learned(directory) -> dict``, JSON, and ``set_learned(learned, directory)``.
        name: What files call it; the class's name if None.

    Raises:
        MerlinSimError: Where the class lacks one of these, or another one has the name.
    """
    if cls is None:
        return lambda decorated: register(decorated, name)
    name = name or cls.__name__
    check_operator(cls, name)
    known = _registered.get(name)
    if known is not None and _place_of(known) != _place_of(cls):
        raise MerlinSimError(
            f"Operator {name!r}: the name is taken by {_place_of(known)}. Give `name`."
        )
    _registered[name] = cls
    return cls


def check_operator(cls: Any, name: str) -> None:
    """Refuse what cannot be saved."""
    if not (isinstance(cls, type) and issubclass(cls, Operator)):
        raise MerlinSimError(
            f"`register` takes a subclass of nvtabular.ops.Operator. Received: {cls!r}."
        )
    needed = ("get_config", *(LEARNING if issubclass(cls, StatOperator) else ()))
    lacking = [method for method in needed if not callable(getattr(cls, method, None))]
    if lacking:
        raise MerlinSimError(
            f"Operator {name!r}: expected the methods {', '.join(needed)}, found no "
            f"{', '.join(lacking)}: a saved workflow could not make it again."
        )


def operators_with(more: Iterable[type[Operator]]) -> dict[str, type[Operator]]:
    """The registered operators by name, and further ones by the names of their classes."""
    known = dict(_registered)
    names = names_of_classes()
    for cls in more:
        name = names.get(cls, cls.__name__)
        check_operator(cls, name)
        known[name] = cls
    return known


def names_of_classes() -> dict[type[Operator], str]:
    """What files call the registered classes."""
    return {cls: name for name, cls in _registered.items()}


def copy_files(files: Mapping[str, str], directory: Path, beside: str = "") -> dict[str, str]:
    """Copy an operator's parquet files, or directories of them, into a directory.

    Args:
        files: By a name of the operator's, the path of each.
        directory: Where they are copied to.
        beside: What the name of a file begins with that is copied with each, in place of the
            file's first part: ``meta`` for ``unique.item.parquet``.

    Returns:
        By the same names, the names of the files there.
    """
    copied = {}
    for name, path in sorted(files.items()):
        source = Path(path)
        _copy(source, directory / source.name)
        if beside:
            companion = source.with_name(f"{beside}.{source.name.partition('.')[2]}")
            _copy(companion, directory / companion.name)
        copied[name] = source.name
    return copied


def find_files(files: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The paths of files that :func:`copy_files` copied, by the operator's names."""
    found = {}
    for name, file in files.items():
        path = directory / file
        if Path(file).name != file or not path.exists():
            raise MerlinSimError(f"{directory}: expected the file {file!r}, found none.")
        found[name] = str(path)
    return found


def checked_file(root: Path, file: str, sha256: str) -> Path:
    """The path of a file beside a workflow, which should be the one that was saved.

    Args:
        root: The directory of the workflow.
        file: Its path there.
        sha256: Its digest.
    """
    path = root / file
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise MerlinSimError(f"{path}: expected a file beside the workflow.")
    if not path.is_file():
        raise MerlinSimError(f"{path}: missing; the workflow names it.")
    if digest.sha256(path) != sha256:
        raise MerlinSimError(
            f"{path}: not the file that the workflow was saved with (its SHA-256 differs). Ids "
            "would not be those of the fitted workflow."
        )
    return path


def _copy(source: Path, target: Path) -> None:
    if target.exists() and target.samefile(source):
        return
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)


def _place_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
