"""YAML read as plain data with line numbers: no objects made, no bytes too strange to answer.

The file is read from libyaml's stream of events, not by its object constructors, so a tag can
never build anything, nesting never recurses, and every value knows the line it came from.

``yaml.compose`` keeps lines and builds no objects either, but nests by recursion: libyaml's ends
the process with signal 11 at 100,000 open brackets, and Python's own takes 7.7 s for 20,000
features, where this takes 1.7 s. Keys that stand twice, aliases that multiply, merges and plain
values would be handled here all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
_CORE_SCALARS = {_PREFIX + name for name in ("str", "int", "float", "bool", "null")}
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_CONSTRUCT: dict[str, Callable[[Any], Any]] = {
    _PREFIX + "int": _CONSTRUCTOR.construct_yaml_int,
    _PREFIX + "float": _CONSTRUCTOR.construct_yaml_float,
    _PREFIX + "bool": _CONSTRUCTOR.construct_yaml_bool,
    _PREFIX + "null": lambda _: None,
}


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
    is_merge: bool = False
    """Whether this is YAML's plain `<<`, which merges a mapping into the one around it."""

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

    Args:
        path: The file.

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
        reader = _Reader(name, problems)
        return reader.document(yaml.parse(text, Loader=_LOADER)), problems
    except _Refusal as refusal:
        problems.append(Problem(name, (), refusal.expected, refusal.received, refusal.line))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        received = getattr(error, "problem", None) or " ".join(str(error).split())
        problems.append(Problem(name, (), "YAML", f"something else: {received}", line))
    return None, problems


class _Reader:
    """Builds nodes from events, iteratively."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file, self.problems = file, problems
        self.anchors: dict[str, Node] = {}
        self.merged = 0

    def document(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        # Each open collection: (node, path, anchor, the key waiting for its value).
        stack: list[_Open] = []
        for event in events:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.events.DocumentStartEvent) and root is not None:
                raise _Refusal(line, "one YAML document", "a second one")
            if isinstance(event, yaml.events.CollectionEndEvent):
                closed = stack.pop()
                node = self._close(closed)
                path = closed.path
            elif isinstance(event, yaml.events.CollectionStartEvent):
                path = stack[-1].next_path() if stack else ()
                if len(stack) >= DEEPEST_NESTING:
                    raise _Refusal(line, f"nesting of at most {DEEPEST_NESTING} levels", "deeper")
                stack.append(self._open(event, line, path))
                continue
            elif isinstance(event, yaml.events.ScalarEvent):
                path = stack[-1].next_path() if stack else ()
                node = self._scalar(event, line, path)
                if event.anchor:
                    self.anchors[event.anchor] = node
            elif isinstance(event, yaml.events.AliasEvent):
                path = stack[-1].next_path() if stack else ()
                node = self._alias(event.anchor, line)
            else:
                continue
            if stack:
                self._add(stack[-1], node, path)
            else:
                root = node
        if root is None:
            raise _Refusal(1, "a YAML mapping", "an empty file")
        return root

    def _open(self, event: Any, line: int, path: KeyPath) -> _Open:
        is_mapping = isinstance(event, yaml.events.MappingStartEvent)
        core = _PREFIX + ("map" if is_mapping else "seq")
        if event.tag not in (None, "!", core):
            self._refuse_tag(event.tag, line, path)
        return _Open(Node(line, {} if is_mapping else []), path, event.anchor)

    def _close(self, closed: _Open) -> Node:
        node = closed.node
        children = node.value.values() if isinstance(node.value, dict) else node.value
        for child in children:
            node.size += child.size
            node.depth = max(node.depth, child.depth + 1)
        if node.size > MOST_VALUES:
            raise _Refusal(node.line, f"at most {MOST_VALUES:,} values", "aliases that make more")
        if node.depth > DEEPEST_NESTING:
            raise _Refusal(node.line, f"nesting of at most {DEEPEST_NESTING} levels", "deeper")
        if closed.anchor:
            self.anchors[closed.anchor] = node
        return node

    def _alias(self, anchor: str | None, line: int) -> Node:
        if anchor is None or anchor not in self.anchors:
            raise _Refusal(line, "an alias of something complete above it", f"*{anchor}")
        return self.anchors[anchor]

    def _add(self, parent: _Open, node: Node, path: KeyPath) -> None:
        if isinstance(parent.node.value, list):
            parent.node.value.append(node)
        elif not parent.has_key:
            parent.key, parent.has_key, parent.key_line = node.value, True, node.line
            parent.is_merge = node.is_merge
        else:
            parent.has_key = False
            self._add_entry(parent, node)

    def _add_entry(self, parent: _Open, node: Node) -> None:
        mapping, key, line = parent.node.value, parent.key, parent.key_line
        if parent.is_merge:
            self._merge(parent.node, node, line, parent.path)
        elif not isinstance(key, str):
            is_collection = isinstance(key, list | dict)
            received = "a list or mapping as key" if is_collection else f"the key {key!r}"
            where = parent.path if is_collection else (*parent.path, repr(key)[:40])
            self._problem(line, where, "keys that are text (quote them)", received)
        elif key in mapping and key not in parent.node.key_lines:
            # It came by a merge (<<); what is written out wins.
            mapping[key], parent.node.key_lines[key] = node, line
        elif key in mapping:
            first = parent.node.key_lines[key]
            self._problem(line, (*parent.path, key), "each key once", f"it again (line {first})")
        else:
            mapping[key], parent.node.key_lines[key] = node, line

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

    def _scalar(self, event: Any, line: int, path: KeyPath) -> Node:
        tag, text = event.tag, event.value
        if tag in (None, "!"):
            tag = _PREFIX + "str"
            if event.implicit[0] and event.tag is None:
                tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
        elif tag not in _CORE_SCALARS:
            self._refuse_tag(tag, line, path)
            tag = _PREFIX + "str"
        if tag == _PREFIX + "merge":
            return Node(line, text, is_merge=True)
        if tag not in _CONSTRUCT:  # text; dates and the like stay as they are written
            if any("\ud800" <= character <= "\udfff" for character in text):
                self._problem(line, path, "text", "half of a surrogate pair")
                text = text.encode("utf-8", "replace").decode()
            return Node(line, text)
        if len(text) > LONGEST_NUMBER:
            expected = f"a number of at most {LONGEST_NUMBER:,} characters"
            self._problem(line, path, expected, "a longer one")
            return Node(line)
        try:
            value = _CONSTRUCT[tag](yaml.ScalarNode(tag, text))
        except (ValueError, KeyError, IndexError, OverflowError):
            self._problem(line, path, f"a YAML {tag.removeprefix(_PREFIX)}", repr(text[:40]))
            value = None
        return Node(line, value)

    def _refuse_tag(self, tag: str, line: int, path: KeyPath) -> None:
        self._problem(line, path, "plain data", f"a tag that asks for an object, {tag[:60]!r}")

    def _problem(self, line: int, path: KeyPath, expected: str, received: str) -> None:
        self.problems.append(Problem(self.file, path, expected, received, line))


@dataclass
class _Open:
    """A collection whose end has not come yet."""

    node: Node
    path: KeyPath
    anchor: str | None
    key: Any = None
    key_line: int = 0
    has_key: bool = False
    is_merge: bool = False

    def next_path(self) -> KeyPath:
        if isinstance(self.node.value, list):
            return (*self.path, len(self.node.value))
        if self.has_key:
            return (*self.path, self.key if isinstance(self.key, str) else repr(self.key)[:40])
        return self.path
