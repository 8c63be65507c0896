"""Changes to bytes, trees, lines and directories, as strategies draw them."""

import copy
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st

ANY_NUMBER = st.integers(0, 2**30)
"""Of a file, a node, a line or a byte: counted around those that are there."""
ODD_VALUES = st.one_of(
    st.sampled_from([None, -1, 0, 1, 2, 61, 10**12, 2**31, 2**63, 2**70, 1.5, 1e308, True, False]),
    st.sampled_from(["", "x", "60", "auto", "who", "train", "int32", "float64", "string", "csv"]),
    st.sampled_from([[], {}, [[]], ["who"], {"who": 1}, "x" * 5000, "\u2028", "nul\0byte", "1e3"]),
    st.sampled_from(["../../etc/passwd", "/etc/passwd", "NaN", "step-0000000001", "train"]),
    st.sampled_from(["./train/part.0.parquet", "../d/train/part.1.parquet", "train/gone.parquet"]),
    st.integers(-3, 300) | st.text(max_size=4),
)
CONTENTS = [
    *(b"", b" \n \n", bytes(200), b"[" * 200_000, b'{"a":' * 100_000, b"feature { " * 50_000),
    *(b"7\n", b"null", b"{}", b"text\n", b"\xff\xfe\x00{", b"PAR1PAR1", b"\x1f\x8b"),
    b"a: &a [x,x,x]\nb: &b [*a,*a,*a]\nd: &d [*d]\n",
]


class ByteChange(NamedTuple):
    """A change of a few bytes somewhere."""

    how: str
    at: int
    count: int
    value: int

    def made(self, content: bytes, start: int = 0, stop: int | None = None) -> bytes:
        stop = len(content) if stop is None else stop
        if stop <= start:
            return content
        at, changed = start + self.at % (stop - start), bytearray(content)
        here = slice(at, at + self.count)
        if self.how == "flip":
            changed[at] ^= 1 << self.value % 8
        elif self.how == "set":
            changed[at] = self.value
        elif self.how == "cut":
            del changed[at:]
        elif self.how == "remove":
            del changed[here]
        else:
            changed[at:at] = changed[here] if self.how == "repeat" else bytes([self.value])
        return bytes(changed)

    def make(self, path: Path) -> None:
        path.write_bytes(self.made(path.read_bytes()))


BYTE_CHANGES = st.builds(
    ByteChange,
    st.sampled_from([*["flip", "set"] * 3, "cut", "insert", "remove", "repeat"]),
    *(ANY_NUMBER, st.integers(1, 16), st.integers(0, 255)),
)


class PageChange(NamedTuple):
    """A change of bytes of one part of a parquet file."""

    part: str
    change: ByteChange

    def make(self, path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(self.change.made(content, *self._byte_range(path, content)))

    def _byte_range(self, path: Path, content: bytes) -> tuple[int, int]:
        if self.part == "footer" and len(content) >= 12:
            (length,) = struct.unpack("<I", content[-8:-4])
            return max(0, len(content) - 8 - length), len(content)
        try:
            metadata = pq.read_metadata(path)
        except (pa.ArrowException, OSError, ValueError):
            return 0, len(content)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        if not chunks:
            return 0, len(content)
        chunk = chunks[(self.change.at >> 10) % len(chunks)]
        offsets = (chunk.data_page_offset, chunk.dictionary_page_offset)
        start, size = min(filter(None, offsets)), chunk.total_compressed_size
        return start, start + (min(size, 24) if self.part == "page header" else size)


PAGE_CHANGES = st.builds(
    PageChange, st.sampled_from(["pages", "page header", "footer"]), BYTE_CHANGES
)


class TreeChange(NamedTuple):
    """A change of one node of a JSON or YAML file, counted from its root in reading order."""

    node: int
    how: str
    value: Any

    def change(self, tree: Any) -> None:
        nodes = list(nodes_of(tree))
        if not nodes:
            return
        holder, key = nodes[self.node % len(nodes)]
        if self.how == "remove":
            del holder[key]
        elif self.how == "rename" and isinstance(holder, dict):
            holder[str(self.value)] = holder.pop(key)
        elif self.how == "repeat" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif self.how == "one more" and isinstance(holder[key], int | float):
            holder[key] += 1
        elif self.how == "one more" and isinstance(holder[key], dict):
            holder[key]["one more"] = self.value
        else:
            holder[key] = self.value

    def make(self, path: Path) -> None:
        is_json = path.suffix == ".json"
        try:
            text = path.read_text(encoding="utf-8")
            tree = json.loads(text) if is_json else yaml.safe_load(text)
            self.change(tree)
        except (OSError, ValueError, yaml.YAMLError, RecursionError):
            return
        text = json.dumps(tree) if is_json else yaml.safe_dump(tree, sort_keys=False)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))


TREE_CHANGES = st.builds(
    TreeChange,
    ANY_NUMBER,
    st.sampled_from(["replace", "remove", "rename", "repeat", "one more"]),
    ODD_VALUES,
)


def nodes_of(tree: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(tree, dict | list):
        for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
            yield tree, key
            yield from nodes_of(tree[key])


class Thing(NamedTuple):
    """Something else instead of a file: other content, no file, or nothing."""

    what: str | bytes

    def make(self, path: Path) -> None:
        path.unlink()
        if isinstance(self.what, bytes):
            path.write_bytes(self.what)
        elif self.what == "a directory":
            path.mkdir()
        elif self.what.startswith("a link"):
            path.symlink_to("nowhere" if self.what.endswith("nothing") else path.name)


NO_FILES = ["no file", "a directory", "a link to nothing", "a link to itself"]
THINGS = st.builds(Thing, st.sampled_from([*NO_FILES, *CONTENTS]))
CONTENT_DAMAGES = st.one_of(BYTE_CHANGES, TREE_CHANGES, TREE_CHANGES, THINGS)


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.name != ".lock")


class FileDamage(NamedTuple):
    """A damage to one of a directory's files, or an exchange, another name, a lost folder."""

    number: int
    change: Any

    def make(self, directory: Path) -> None:
        found, change = files_of(directory), self.change
        if isinstance(change, TreeChange):
            found = [path for path in found if path.suffix in (".json", ".yaml")]
        if not found:
            return
        path = found[self.number % len(found)]
        if isinstance(change, int):
            other = found[change % len(found)]
            one, two = path.read_bytes(), other.read_bytes()
            path.write_bytes(two)
            other.write_bytes(one)
        elif isinstance(change, str):
            if not path.with_name(change).is_dir():
                path.replace(path.with_name(change))
        elif change is not None:
            change.make(path)
        elif path.parent != directory:
            shutil.rmtree(path.parent)


OTHER_NAMES = st.sampled_from(["x", ".hidden", "manifest.json", "arrays.npz", "é\n"])
FILE_DAMAGES = st.builds(
    FileDamage, ANY_NUMBER, st.one_of(CONTENT_DAMAGES, ANY_NUMBER, OTHER_NAMES, st.none())
)
