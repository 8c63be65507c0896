"""What passes between a stub and its worker comes back as it was, whatever is sent."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from merlin_sim.serving.workers.protocol import receive_frame, send_frame

NUMBERS = of_numpy.arrays(
    st.sampled_from(["int64", "int32", "float32", "bool"]),
    of_numpy.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5),
)
TEXTS = st.lists(st.binary(max_size=9), max_size=5).map(
    lambda texts: np.array([*texts, None], object)[:-1].reshape(-1, 1)
)


def passed_on(message, tensors):
    """Send a frame through a real socket, and take it."""
    here, there = socket.socketpair()
    with here, there:
        sending = threading.Thread(target=send_frame, args=(here, message, tensors))
        sending.start()
        found = receive_frame(there)
        sending.join()
    return found


@given(st.dictionaries(st.text(max_size=3), st.one_of(NUMBERS, TEXTS), max_size=3))
def test_arrays_come_as_they_were_sent(tensors):
    found = passed_on({"kind": "answer"}, tensors)
    assert found.message == {"kind": "answer"} and list(found.tensors) == list(tensors)
    for name, sent in tensors.items():
        assert (found.tensors[name].dtype, found.tensors[name].shape) == (sent.dtype, sent.shape)
        np.testing.assert_array_equal(found.tensors[name], sent)


def test_more_than_a_socket_holds_comes_whole():
    big = np.arange(3_000_000)
    np.testing.assert_array_equal(passed_on({}, {"big": big}).tensors["big"], big)


@pytest.mark.parametrize("sent", [b"", b"\1\0", b"\5\0\0\0" + bytes(8) + b"{}"])
def test_a_frame_that_is_cut_off_is_none(sent):
    here, there = socket.socketpair()
    with there:
        with here:
            here.sendall(sent)
        assert receive_frame(there) is None
