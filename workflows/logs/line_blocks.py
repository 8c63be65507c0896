"""Text files of lines, plain or gzipped, in pieces that can be read on their own."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...foundation.exceptions import MerlinSimError

BLOCK_BYTES = 32 << 20


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file: a range of bytes of a plain one, all of a gzipped one."""

    path: Path
    start: int
    end: int

    @property
    def is_stream(self) -> bool:
        """Whether the block can only be read as a stream."""
        return self.path.suffix == ".gz"

    @property
    def header(self) -> int:
        """A file of lines has no header."""
        return 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.end - self.start

    def texts(self) -> Iterator[tuple[bytes, int]]:
        """Give the block's lines in pieces, each with the bytes on disk read so far."""
        try:
            if not self.is_stream:
                with open(self.path, "rb") as file:
                    file.seek(self.start)
                    yield file.read(self.size), self.size
                return
            with open(self.path, "rb") as raw, gzip.GzipFile(fileobj=raw) as file:
                yield from _pieces_of_stream(file, raw, self.path)
        except OSError as error:
            raise MerlinSimError(f"{self.path}: {error.strerror or error}.") from error

    def lines_before(self) -> int:
        """Count the lines before the block."""
        count = 0
        with open(self.path, "rb") as file:
            while file.tell() < self.start:
                count += file.read(min(BLOCK_BYTES, self.start - file.tell())).count(b"\n")
        return count


def _pieces_of_stream(
    file: gzip.GzipFile, raw: BinaryIO, path: Path
) -> Iterator[tuple[bytes, int]]:
    lines = 0
    rest = b""
    while True:
        try:
            piece = file.read(BLOCK_BYTES)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise MerlinSimError(
                f"{path}, after line {lines + rest.count(bytes([10])):,}: the gzip stream is "
                f"damaged or cut short ({error}). Fetch the file again."
            ) from error
        text = rest + piece
        end = text.rfind(b"\n") + 1 if piece else len(text)
        rest = text[end:]
        lines += text.count(b"\n", 0, end)
        if end:
            yield text[:end], raw.tell()
        if not piece:
            return


def find_text_file(directory: Path, name: str) -> Path:
    """Find a file by its name, or by its name with ``.gz``.

    Raises:
        MerlinSimError: Where there is neither.
    """
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    raise MerlinSimError(f"{directory / name}: no such file, nor {name}.gz.")


def line_blocks(path: Path, block_bytes: int | None = None) -> list[LineBlock]:
    """Cut a file into blocks that begin and end between lines."""
    block_bytes = block_bytes or BLOCK_BYTES
    try:
        size = os.path.getsize(path)
        if path.suffix == ".gz":
            if not size:
                raise MerlinSimError(
                    f"{path}: expected a gzip stream, found an empty file. Fetch the file again."
                )
            return [LineBlock(path, 0, size)]
        ends: list[int] = []
        with open(path, "rb") as file:
            while not ends or ends[-1] < size:
                file.seek(min(size, (ends[-1] if ends else 0) + block_bytes))
                file.readline()
                ends.append(file.tell())
    except OSError as error:
        raise MerlinSimError(f"{path}: {error.strerror or error}.") from error
    return [LineBlock(path, *span) for span in zip([0, *ends], ends, strict=False)]
