"""What a program costs by the text of its HLO: bytes, products, kernels, and what the host awaits.

An instruction of an optimized program is a kernel. It reads its operands and writes its result;
what is within a fusion stays in registers. Of an operand only what is asked for counts: a gather
and a slice read what they take, a scatter and an update in place touch what they change. A loop
counts as often as it runs, a choice as its dearest branch.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache

WIDTHS = {"pred": 1, "token": 0, "opaque": 0, "c64": 8, "c128": 16}
FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id replica-id "
    "opt-barrier add-dependency domain get-dimension-size".split()
)
ROUNDS_NOT_TOLD = 10
"""Of a loop whose rounds the program does not tell: positions of a short history."""

ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,<= ]*)\]")
OPCODE = re.compile(r"(?:^|\s)([a-z][\w\-]*)\(")
NAMES = re.compile(r"%([\w.\-]+)")
TRIPS = re.compile(r'known_trip_count\\?":\{\\?"n\\?":\\?"(\d+)')
HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) .*\{$")


@dataclass(frozen=True)
class Array:
    """One array."""

    kind: str
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return math.prod(self.sizes)

    @property
    def width(self) -> int:
        """Bytes of a number."""
        found = re.search(r"\d+", self.kind)
        return WIDTHS.get(self.kind, max(1, int(found.group()) // 8) if found else 4)

    @property
    def bytes(self) -> int:
        """Bytes of all."""
        return self.count * self.width


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    arrays: tuple[Array, ...]
    opcode: str
    operands: tuple[str, ...]
    number: int
    """Of a parameter, which it is."""
    rest: str

    @property
    def count(self) -> int:
        """Numbers of all arrays."""
        return sum(array.count for array in self.arrays)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.bytes for array in self.arrays)

    def called(self, key: str) -> list[str]:
        """The computations that an attribute names."""
        found = re.search(rf"\b{key}=(\{{[^}}]*\}}|%?[\w.\-]+)", self.rest)
        return [n.strip("{}% ") for n in found.group(1).split(",")] if found else []

    def dimensions(self, key: str) -> list[int]:
        """The numbers of an attribute, in HLO's own form or in cuBLAS's."""
        found = re.search(rf'{key}(?:=\{{|\\?":\[)([^\]}}]*)', self.rest)
        return [int(n) for n in re.findall(r"\d+", found.group(1))] if found else []


@dataclass
class Computation:
    """Instructions in their order; the last one that is marked is the result."""

    instructions: dict[str, Instruction] = field(default_factory=dict)
    root: str = ""


def read_instruction(line: str) -> tuple[Instruction, bool]:
    """Read one line; say whether it is the computation's result."""
    name, text = line.split(" = ", 1)
    opcode = OPCODE.search(text)
    assert opcode is not None, line
    end, depth = opcode.end(), 1
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    inside = text[opcode.end() : end - 1]
    arrays = tuple(
        Array(kind, tuple(int(n.strip("<= ")) for n in sizes.split(",") if n.strip("<= ")))
        for kind, sizes in ARRAY.findall(text[: opcode.start()])
    )
    plain = opcode.group(1) in ("parameter", "constant", "iota")
    number = int(inside) if opcode.group(1) == "parameter" else -1
    # XLA writes types and "%" beside the names, or the names alone.
    names = NAMES.findall(inside) if "%" in inside else inside.replace(" ", "").split(",")
    operands = () if plain else tuple(names)
    name = name.removeprefix("ROOT ").strip("% ")
    found = Instruction(name, arrays, opcode.group(1), operands, number, text[end:])
    return found, line.startswith("ROOT ")


@dataclass
class Cost:
    """What a program, or a part of it, costs."""

    bytes: float = 0.0
    product_flops: float = 0.0
    kernels: float = 0.0
    choices: int = 0
    sorts: int = 0
    endless: int = 0
    """Loops whose rounds are not known: the host asks before each."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Bytes by kind of kernel."""
    dearest: list[tuple[float, str]] = field(default_factory=list)

    def add(self, other: Cost, times: int = 1) -> None:
        """Add what happens so many times; what is in the program once, counts once."""
        self.bytes += times * other.bytes
        self.product_flops += times * other.product_flops
        self.kernels += times * other.kernels
        self.choices += other.choices
        self.sorts += other.sorts
        self.endless += other.endless
        for kind, moved in other.kinds.items():
            self.kinds[kind] += int(times * moved)
        self.dearest += [(times * moved, what) for moved, what in other.dearest]

    @property
    def syncs(self) -> int:
        """How often the host waits within a step."""
        return self.choices + ROUNDS_NOT_TOLD * self.endless


class Program:
    """The text of an HLO module.

    Args:
        text: As XLA writes it.
    """

    def __init__(self, text: str) -> None:
        self.computations: dict[str, Computation] = {}
        self.entry = ""
        current: Computation | None = None
        for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
            line = line.strip()
            if current is not None and " = " in line:
                found, is_root = read_instruction(line)
                current.instructions[found.name] = found
                if is_root:
                    current.root = found.name
            elif line.startswith("}"):
                current = None
            elif current is None and (head := HEAD.match(line)) and not line.startswith("HloMod"):
                current = self.computations.setdefault(head.group(2), Computation())
                self.entry = head.group(2) if head.group(1) else self.entry
        self.cost = cache(self._cost)
        self._reads = cache(self._count_reads)

    def opcodes(self) -> Counter[str]:
        """How often each operation stands in the program, fused or not."""
        every = (c.instructions.values() for c in self.computations.values())
        return Counter(i.opcode for instructions in every for i in instructions)

    def total(self) -> Cost:
        """What one run of it costs."""
        return self.cost(self.entry)

    def _cost(self, name: str) -> Cost:
        """What a computation costs whose instructions are kernels."""
        cost, computation = Cost(), self.computations[name]
        for instruction in computation.instructions.values():
            self._add(cost, instruction, computation.instructions)
        return cost

    def _add(self, cost: Cost, one: Instruction, others: dict[str, Instruction]) -> None:
        if one.opcode in FREE:
            return
        if one.opcode == "while":
            reported = TRIPS.search(one.rest)
            cost.endless += not reported
            (body,), (condition,) = one.called("body"), one.called("condition")
            for part in (body, condition):
                cost.add(self.cost(part), int(reported.group(1)) if reported else ROUNDS_NOT_TOLD)
            return
        if one.opcode == "conditional":
            cost.choices += 1
            keys = ("branch_computations", "true_computation", "false_computation")
            branches = [self.cost(part) for key in keys for part in one.called(key)]
            cost.add(max(branches, key=lambda branch: branch.bytes + branch.product_flops))
            return
        if one.opcode == "call":
            cost.add(self.cost(one.called("to_apply")[0]))
            return
        moved, kind = self._moved(one, others)
        cost.bytes += moved
        cost.kernels += 1
        cost.kinds[kind] += int(moved)
        inside = [(one, others), *self._fused(one)]
        cost.sorts += sum(map(_is_sort, (i for i, _ in inside)))
        cost.product_flops += sum(_flops(*each) for each in inside)
        origin = re.search(r'op_name="([^"]*)"', one.rest)
        shape = ", ".join(f"{a.kind}{list(a.sizes)}" for a in one.arrays[:1])
        cost.dearest.append((moved, f"{kind} {shape} {origin.group(1)[-70:] if origin else ''}"))

    def _fused(self, one: Instruction) -> list[tuple[Instruction, dict[str, Instruction]]]:
        """What is within a fusion, each beside those of its computation."""
        if one.opcode != "fusion":
            return []
        inside = self.computations[one.called("calls")[0]].instructions
        return [e for i in inside.values() for e in ((i, inside), *self._fused(i))]

    def _moved(self, one: Instruction, others: dict[str, Instruction]) -> tuple[float, str]:
        """Bytes that a kernel reads and writes, and what kind it is."""
        given = [others[name] for name in one.operands if name in others]
        if one.opcode == "fusion":
            inner = one.called("calls")[0]
            share = self._reads(inner)
            read = sum(
                g.bytes * min(1.0, share.get(k, 0) / max(1, g.count)) for k, g in enumerate(given)
            )
            kinds = [i.opcode for i, _ in self._fused(one)]
            special = next((k for k in ("scatter", "gather", "dot", "reduce") if k in kinds), "")
            written = self._written(inner, self.computations[inner].root)
            return read + written, f"fusion {special}".strip()
        if one.opcode == "gather":
            return 2 * one.bytes + given[1].bytes, one.opcode
        if one.opcode in ("slice", "dynamic-slice"):
            return 2 * one.bytes, one.opcode
        if one.opcode == "dynamic-update-slice":
            return 2 * given[1].bytes, one.opcode
        if one.opcode == "scatter":
            changed = min(given[0].bytes, given[-1].bytes)
            return given[-1].bytes + given[1].bytes + 2 * changed, one.opcode
        read = sum(g.bytes for g in given)
        if one.opcode == "custom-call":
            target = re.search(r'custom_call_target="([^"]+)"', one.rest)
            kind = target.group(1) if target else one.opcode
            # What else cuBLAS returns is the memory that it works in.
            written = one.arrays[0].bytes if "gemm" in kind else one.bytes
            return read + written, kind
        return read + one.bytes, one.opcode

    def _written(self, name: str, root: str) -> float:
        """Bytes that the result of a fusion writes."""
        instructions = self.computations[name].instructions
        one = instructions[root]
        if one.opcode == "tuple":
            return sum(self._written(name, operand) for operand in one.operands)
        if one.opcode in ("bitcast", "reshape"):
            return self._written(name, one.operands[0])
        if one.opcode == "dynamic-update-slice":
            return instructions[one.operands[1]].bytes
        if one.opcode == "scatter":
            return min(one.bytes, instructions[one.operands[-1]].bytes)
        return one.bytes

    def _count_reads(self, name: str) -> dict[int, float]:
        """How many numbers of each parameter a fusion asks for, worked out from its result."""
        computation = self.computations[name]
        instructions, asked = computation.instructions, defaultdict[str, float](float)
        asked[computation.root] = instructions[computation.root].count
        for one in reversed(instructions.values()):
            wanted = min(asked[one.name], one.count)
            if not wanted:
                continue
            for index, operand in enumerate(one.operands):
                whole = instructions[operand].count
                asked[operand] += self._asked(one, index, wanted, whole, instructions)
        return {
            one.number: min(asked[one.name], one.count)
            for one in instructions.values()
            if one.opcode == "parameter"
        }

    def _asked(
        self,
        one: Instruction,
        index: int,
        wanted: float,
        whole: int,
        others: dict[str, Instruction],
    ) -> float:
        """How much of an operand is asked for where so much of the result is."""
        if one.opcode == "fusion":
            return self._reads(one.called("calls")[0]).get(index, 0.0)
        if one.opcode in ("tuple", "get-tuple-element"):
            return whole
        if one.opcode in ("slice", "dynamic-slice"):
            return wanted if index == 0 else 1
        if one.opcode == "dynamic-update-slice":
            return (0, whole, 1)[min(index, 2)]
        if one.opcode == "gather" and index == 0:
            return wanted
        if one.opcode == "scatter" and index == 0:
            return min(whole, others[one.operands[-1]].count)
        if one.opcode == "scatter":
            return whole
        return whole * min(1.0, wanted / one.count)


def _is_sort(one: Instruction) -> bool:
    """Return whether it puts something in order."""
    calls_top_k = one.opcode == "custom-call" and 'custom_call_target="TopK"' in one.rest
    return one.opcode in ("sort", "topk") or calls_top_k


def _flops(one: Instruction, others: dict[str, Instruction]) -> float:
    """Of a product: two for each number of the result and of what is summed over."""
    if one.opcode == "dot":
        summed = one.dimensions("lhs_contracting_dims")
    elif one.opcode == "custom-call" and re.search("gemm|matmul", one.rest):
        summed = one.dimensions("lhs_contracting_dimensions")
    else:
        return 0.0
    left = others[one.operands[0]].arrays[0]
    return 2.0 * one.arrays[0].count * math.prod(left.sizes[index] for index in summed)
