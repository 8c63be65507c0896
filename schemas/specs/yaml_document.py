"""YAML read as plain data with line numbers: no objects made, no bytes too strange to answer.

libyaml composes nodes, which know their lines, and its object constructors are left alone, so a
tag can never build anything. It nests by recursion, and ends the process at 100,000 open brackets:
its stream of events is looked through before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ...foundation.problem import KeyPath, Problem

DEEPEST_NESTING = 64
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


@dataclass
class Node:
    """One value of the document and the line on which it begins.

    ``value`` holds a scalar, a list of nodes, or a dict of key to node.
    """

    line: int
    value: Any = None
    key_lines: dict[str, int] = field(default_factory=dict)
    size: int = 1
    depth: int = 1

    def plain(self) -> Any:
        """Return the value without its lines: scalars, lists and dicts."""
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        return self.value

    def line_of(self, path: KeyPath) -> int:
        """Return the line of the value at ``path``, or of the nearest thing above it."""
        node, line = self, self.line
        for step in path:
            if isinstance(node.value, dict) and step in node.value:
                line, node = node.key_lines.get(str(step), line), node.value[step]
            elif isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
                node = node.value[step]
                line = node.line
            else:
                break
        return line


class _Refusal(Exception):
    """Raised inside the reader where reading on makes no sense."""

    def __init__(self, line: int, expected: str, received: str) -> None:
        super().__init__(expected)
        self.line, self.expected, self.received = line, expected, received


def read_yaml(path: Path) -> tuple[Node | None, list[Problem]]:
    """Read one YAML file as plain data.

    Returns:
        The root node, or None where nothing could be read, and the problems found on the way
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
        return _Reader(name, problems).node(root, ()), problems
    except _Refusal as refusal:
        problems.append(Problem(name, (), refusal.expected, refusal.received, refusal.line))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        received = getattr(error, "problem", None) or " ".join(str(error).split())
        problems.append(Problem(name, (), "YAML", f"something else: {received}", line))
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
                raise _Refusal(line, f"nesting of at most {DEEPEST_NESTING} levels", "deeper")
        elif isinstance(event, yaml.events.CollectionEndEvent):
            known.add(open_anchors.pop())
        elif isinstance(event, yaml.events.ScalarEvent):
            known.add(event.anchor)
        elif isinstance(event, yaml.events.AliasEvent) and event.anchor not in known:
            raise _Refusal(line, "an alias of something complete above it", f"*{event.anchor}")
    if not documents:
        raise _Refusal(1, "a YAML mapping", "an empty file")


class _Reader:
    """Makes nodes with plain values of libyaml's."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file, self.problems = file, problems
        self.made: dict[int, Node] = {}
        """By libyaml's node: an alias is the same one again."""
        self.merged = 0

    def node(self, given: Any, path: KeyPath) -> Node:
        if id(given) not in self.made:
            self.made[id(given)] = self._make(given, path)
        return self.made[id(given)]

    def _make(self, given: Any, path: KeyPath) -> Node:
        node = Node(given.start_mark.line + 1)
        if isinstance(given, yaml.ScalarNode):
            node.value = self._scalar(given, node.line, path)
            return node
        is_mapping = isinstance(given, yaml.MappingNode)
        if given.tag != _PREFIX + ("map" if is_mapping else "seq"):
            self._refuse_tag(given.tag, node.line, path)
        if is_mapping:
            node.value = {}
            for key, value in given.value:
                self._add_entry(node, key, value, path)
            children = list(node.value.values())
        else:
            node.value = children = [
                self.node(child, (*path, n)) for n, child in enumerate(given.value)
            ]
        for child in children:
            node.size += child.size
            node.depth = max(node.depth, child.depth + 1)
        if node.size > MOST_VALUES:
            raise _Refusal(node.line, f"at most {MOST_VALUES:,} values", "aliases that make more")
        if node.depth > DEEPEST_NESTING:
            raise _Refusal(node.line, f"nesting of at most {DEEPEST_NESTING} levels", "deeper")
        return node

    def _add_entry(self, into: Node, key: Any, value: Any, path: KeyPath) -> None:
        name, line = self.node(key, path).value, key.start_mark.line + 1
        step = name if isinstance(name, str) else repr(name)[:40]
        node = self.node(value, (*path, step))
        if key.tag == _MERGE:
            self._merge(into, node, line, path)
        elif not isinstance(name, str):
            is_collection = isinstance(name, list | dict)
            received = "a list or mapping as key" if is_collection else f"the key {name!r}"
            where = path if is_collection else (*path, step)
            self._problem(line, where, "keys that are text (quote them)", received)
        elif name in into.key_lines:
            first = into.key_lines[name]
            self._problem(line, (*path, name), "each key once", f"it again (line {first})")
        else:  # what came by a merge (<<) gives way to it
            into.value[name], into.key_lines[name] = node, line

    def _merge(self, into: Node, node: Node, line: int, path: KeyPath) -> None:
        sources = node.value if isinstance(node.value, list) else [node]
        for source in sources:
            if not isinstance(source.value, dict):
                self._problem(line, (*path, "<<"), "a mapping to merge", "something else")
                continue
            for key, child in source.value.items():
                into.value.setdefault(key, child)
            self.merged += len(source.value)
            if self.merged > MOST_VALUES:
                raise _Refusal(line, f"at most {MOST_VALUES:,} values", "merges that make more")

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
        self.problems.append(Problem(self.file, path, expected, received, line))
