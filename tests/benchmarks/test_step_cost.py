"""The training step as XLA takes it for a GPU: nothing in it makes the GPU wait for the host."""

from __future__ import annotations

import pytest
from gpu import step_cost
from gpu.hlo_cost import Program
from gpu.whole_step import hlo_of, make_step, small_dataset

PROGRAM = """HloModule small

%fused (p.0: f32[8,4], p.1: f32[2,4]) -> f32[2,4] {
  %p.0 = f32[8,4]{1,0} parameter(0)
  %p.1 = f32[2,4]{1,0} parameter(1)
  %some = f32[2,4]{1,0} slice(f32[8,4]{1,0} %p.0), slice={[0:2], [0:4]}
  ROOT %sum = f32[2,4]{1,0} add(f32[2,4]{1,0} %some, f32[2,4]{1,0} %p.1)
}

body (b: (s32[], f16[4])) -> (s32[], f16[4]) {
  b = (s32[], f16[4]{0}) parameter(0)
  part = f16[4]{0} get-tuple-element(b), index=1
  moved = f16[4]{0} copy(part)
  number = s32[] get-tuple-element(b), index=0
  ROOT both = (s32[], f16[4]{0}) tuple(number, moved)
}

condition (c: (s32[], f16[4])) -> pred[] {
  c = (s32[], f16[4]{0}) parameter(0)
  ROOT always = pred[] constant(true)
}

ENTRY main (x: f32[8,4], y: f32[2,4], z: (s32[], f16[4])) -> f32[2,2] {
  x = f32[8,4]{1,0} parameter(0)
  y = f32[2,4]{1,0} parameter(1)
  z = (s32[], f16[4]{0}) parameter(2)
  %few = f32[2,4]{1,0} fusion(x, y), kind=kLoop, calls=%fused
  rounds = (s32[], f16[4]{0}) while(z), condition=condition, body=body, OF_LOOP
  ROOT product = (f32[2,2]{1,0}, s8[99]{0}) custom-call(few, y), \
custom_call_target="__cublas$gemm", \
backend_config={"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}
}
"""
TOLD = 'backend_config={"known_trip_count":{"n":"3"}}'


@pytest.mark.parametrize(("of_loop", "rounds", "endless"), [(TOLD, 3, 0), ("metadata={}", 10, 1)])
def test_a_program_worked_out_by_hand(of_loop, rounds, endless):
    cost = Program(PROGRAM.replace("OF_LOOP", of_loop)).total()
    fused = 2 * 4 * 4 * 3  # the slice alone of what it is cut from, what is added, the sum
    product = 2 * (2 * 4 * 4) + 2 * 2 * 4  # without the memory that cuBLAS works in
    assert cost.bytes == fused + product + rounds * 2 * (4 * 2)
    assert cost.product_flops == 2 * (2 * 2) * 4
    assert cost.kernels == 2 + rounds
    assert (cost.endless, cost.syncs, cost.sorts) == (endless, 10 * endless, 0)


def test_a_bar_that_is_not_kept_is_named():
    kept = {"bytes": 100, "product_mflop": 5, "kernels": 9, "host_syncs": 0, "sorts": 0}
    kept["endless_loops"] = 0
    assert step_cost.broken_bars("rows", kept) == []
    broken = step_cost.broken_bars("users x 16", {**kept, "bytes": 695_000, "sorts": 1})
    assert broken == [
        "users x 16: bytes of published 1.0 is above 0.5",
        "users x 16: sorts 1 is above 0",
    ]


@pytest.mark.slow
def test_nothing_in_a_step_waits(tmp_path):
    """Of users x candidates, whose step has all that one of rows has."""
    users = small_dataset(tmp_path / "users", users=40)
    text = hlo_of(*make_step(users, "sim", 64, max(step_cost.FORMS.values()), amp=True))
    found = step_cost.waiting_operations(text)
    assert [found[name] for name in step_cost.WAITING] == [0] * len(step_cost.WAITING)
    assert 3 <= found["scatter"] <= 12


def test_a_compiler_that_is_missing_is_named(tmp_path):
    with pytest.raises(SystemExit, match="Give --install, or: python3 -m venv .*jaxlib==0.4.35"):
        step_cost.compiler_python(tmp_path / "none", install=False)
