"""YAML read as plain data with line numbers: no objects made, no bytes too strange to answer.

libyaml composes nodes, which know their lines, and its object constructors are left alone, so a
tag can never build anything. It nests by recursion, and ends the process at 100,000 open brackets:
its stream of events is looked through before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..foundation.exceptions import KeyPath, Problem

DEEPEST_NESTING = 64
_NOT_DEEPER = f"nesting of at most {DEEPEST_NESTING} levels"
MOST_VALUES = 1_000_000  # after aliases and merges are expanded
LARGEST_FILE = 64 * 2**20  # bytes
LONGEST_NUMBER = 2_000  # characters

_PREFIX = "tag:yaml.org,2002:"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_CONSTRUCT: dict[str, Callable[[Any], Any]] = {
    _PREFIX + "int": _CONSTRUCTOR.construct_yaml_int,
    _PREFIX + "float": _CONSTRUCTOR.construct_yaml_float,
    _PREFIX + "bool": _CONSTRUCTOR.construct_yaml_bool,
    _PREFIX + "null": lambda _: None,
}
_MERGE = _PREFIX + "merge"
_TEXT = {_PREFIX + name for name in ("str", "timestamp", "value", "merge")}
"""Scalars that stay as they are written."""


@dataclass(frozen=True)
class Node:
    """A document: its value, and the line on which each part of it begins."""

    value: Any
    lines: Mapping[KeyPath, int]
    """By key path; of an entry of a mapping the line of its key."""

    def plain(self) -> Any:
        """Return the value without its lines: scalars, lists and dicts."""
        return self.value

    def line_of(self, path: KeyPath) -> int:
        """Return the line of the value at ``path``, or of the nearest thing above it."""
        above = (path[:end] for end in range(len(path), -1, -1))
        return next(self.lines[part] for part in above if part in self.lines)


class _Refusal(Exception):
    """Raised inside the reader where reading on makes no sense."""

    def __init__(self, line: int, expected: str, received: str) -> None:
        super().__init__(expected)
        self.line, self.expected, self.received = line, expected, received


def read_yaml(path: Path) -> tuple[Node | None, list[Problem]]:
    """Read one YAML file as plain data.

    Gives the root node, or None where nothing could be read, and the problems found on the way
    (duplicate keys, tags that ask for objects); the values beside them are still there.
    """
    problems: list[Problem] = []
    name = str(path)
    try:
        if path.exists() and not path.is_file():
            return None, [Problem(name, (), "a readable file", "a directory or device")]
        if path.stat().st_size > LARGEST_FILE:
            return None, [Problem(name, (), "a file of at most 64 MiB", "a larger one")]
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        return None, [Problem(name, (), "a readable file", f"an error: {reason}")]
    except UnicodeDecodeError as error:
        return None, [Problem(name, (), "UTF-8 text", f"other bytes at position {error.start}")]
    try:
        _look_through(text)
        root: Any = yaml.compose(text, Loader=_LOADER)
        reader = _ValueReader(name, problems)
        return Node(reader.read(root, ()), reader.lines), problems
    except _Refusal as refusal:
        problems.append(Problem(name, (), refusal.expected, refusal.received, refusal.line))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        received = getattr(error, "problem", None) or " ".join(str(error).split())
        if "maximum nesting depth" in received:  # libyaml's own limit, of newer releases
            expected, received = _NOT_DEEPER, "deeper"
        else:
            expected, received = "YAML", f"something else: {received}"
        problems.append(Problem(name, (), expected, received, line))
    return None, problems


def _look_through(text: str) -> None:
    """Refuse what must not be composed: several documents, deep nesting, an alias of no whole."""
    documents = 0
    open_anchors: list[str | None] = []
    known: set[str | None] = set()
    event: Any
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        if isinstance(event, yaml.events.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Refusal(line, "one YAML document", "a second one")
        elif isinstance(event, yaml.events.CollectionStartEvent):
            open_anchors.append(event.anchor)
            if len(open_anchors) > DEEPEST_NESTING:
                raise _Refusal(line, _NOT_DEEPER, "deeper")
        elif isinstance(event, yaml.events.CollectionEndEvent):
            known.add(open_anchors.pop())
        elif isinstance(event, yaml.events.ScalarEvent):
            known.add(event.anchor)
        elif isinstance(event, yaml.events.AliasEvent) and event.anchor not in known:
            raise _Refusal(line, "an alias of something complete above it", f"*{event.anchor}")
    if not documents:
        raise _Refusal(1, "a YAML mapping", "an empty file")


class _ValueReader:
    """Makes plain values of libyaml's nodes; an alias is read again wherever it stands."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file, self.problems = file, problems
        self.lines: dict[KeyPath, int] = {}
        self.reported: set[tuple[int, str, str]] = set()
        self.count = 0

    def read(self, given: Any, path: KeyPath, many: str = "aliases") -> Any:
        """Read a node; ``many`` is what makes too many values where there are."""
        line = given.start_mark.line + 1
        self.lines.setdefault(path, line)
        self.count += 1
        if self.count > MOST_VALUES:
            raise _Refusal(line, f"at most {MOST_VALUES:,} values", f"{many} that make more")
        if len(path) > DEEPEST_NESTING:
            raise _Refusal(line, _NOT_DEEPER, "deeper")
        if isinstance(given, yaml.ScalarNode):
            return self._scalar(given, line, path)
        is_mapping = isinstance(given, yaml.MappingNode)
        if given.tag != _PREFIX + ("map" if is_mapping else "seq"):
            self._refuse_tag(given.tag, line, path)
        if not is_mapping:
            return [self.read(one, (*path, n), many) for n, one in enumerate(given.value)]
        written: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in given.value:
            if key.tag == _MERGE:
                self._merge(merged, value, key.start_mark.line + 1, path)
            else:
                self._add_entry(written, key, value, path, many)
        return {**merged, **written}

    def _add_entry(
        self, into: dict[str, Any], key: Any, value: Any, path: KeyPath, many: str
    ) -> None:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            received = "a list or mapping as key"
            self._problem(line, path, "keys that are text (quote them)", received)
            return
        name = self._scalar(key, line, path)
        here = (*path, name if isinstance(name, str) else repr(name)[:40])
        first = self.lines.setdefault(here, line)
        read = self.read(value, here, many)
        if not isinstance(name, str):
            self._problem(line, here, "keys that are text (quote them)", f"the key {name!r}")
        elif name in into:
            self._problem(line, here, "each key once", f"it again (line {first})")
        else:
            into[name] = read

    def _merge(self, into: dict[str, Any], value: Any, line: int, path: KeyPath) -> None:
        """Merge a mapping (<<), or several; what stands there already stays."""
        read = self.read(value, (*path, "<<"), "merges")
        for source in read if isinstance(read, list) else [read]:
            if isinstance(source, dict):
                into |= {key: child for key, child in source.items() if key not in into}
            else:
                self._problem(line, (*path, "<<"), "a mapping to merge", "something else")

    def _scalar(self, given: Any, line: int, path: KeyPath) -> Any:
        tag, text = given.tag, given.value
        if tag not in _CONSTRUCT:
            if tag not in _TEXT:
                self._refuse_tag(tag, line, path)
            if any("\ud800" <= character <= "\udfff" for character in text):
                self._problem(line, path, "text", "half of a surrogate pair")
                return text.encode("utf-8", "replace").decode()
            return text
        if len(text) > LONGEST_NUMBER:
            expected = f"a number of at most {LONGEST_NUMBER:,} characters"
            self._problem(line, path, expected, "a longer one")
            return None
        try:
            return _CONSTRUCT[tag](given)
        except (ValueError, KeyError, IndexError, OverflowError):
            self._problem(line, path, f"a YAML {tag.removeprefix(_PREFIX)}", repr(text[:40]))
            return None

    def _refuse_tag(self, tag: str, line: int, path: KeyPath) -> None:
        self._problem(line, path, "plain data", f"a tag that asks for an object, {tag[:60]!r}")

    def _problem(self, line: int, path: KeyPath, expected: str, received: str) -> None:
        if (line, expected, received) not in self.reported:  # of an alias, once
            self.reported.add((line, expected, received))
            self.problems.append(Problem(self.file, path, expected, received, line))
