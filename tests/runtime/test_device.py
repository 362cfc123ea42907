"""Copies on the device: by NumPy, and by the graph that serves where memory is not NumPy's."""

import numpy as np
import pytest

from onnxgen.runtime.device import Device

ROWS = [2, 0, 2]


@pytest.fixture
def device():
    return Device()


def filled(device, values):
    memory = device.memory(values.nbytes)
    memory.array(values.shape, values.itemsize)[...] = values
    return memory


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("by_graph", [False, True])
def test_slices_are_taken_along_an_axis(device, dtype, axis, by_graph):
    values = np.arange(3 * 4 * 5).reshape(3, 4, 5).astype(dtype)
    expected = values.take(ROWS, axis)
    target = device.memory(expected.nbytes)
    take = device.take_by_graph if by_graph else device.take
    ends = (filled(device, values), values.shape), (target, expected.shape)
    take(*ends, axis, np.array(ROWS), values.itemsize)
    np.testing.assert_array_equal(target.host(expected.shape, values.itemsize), expected)


def test_only_what_is_used_is_copied_into_more_room(device):
    values = np.arange(1, 3 * 4 * 2 + 1, dtype=np.uint32).reshape(3, 4, 2)
    target = device.memory(3 * 6 * 2 * 4)
    source = (filled(device, values), values.shape)
    device.take(source, (target, (3, 6, 2)), 0, ROWS, 4, used=(1, 3))
    copied = target.array((3, 6, 2), 4)
    np.testing.assert_array_equal(copied[:, :3], values[ROWS, :3])
    assert not copied[:, 3:].any()


@pytest.mark.parametrize("by_graph", [False, True])
def test_a_copy_may_begin_within_its_target(device, by_graph):
    values = np.arange(1, 7, dtype=np.uint32).reshape(3, 2)
    target = device.memory(5 * 2 * 4)
    take = device.take_by_graph if by_graph else device.take
    ends = (filled(device, values), (3, 2)), (target, (2, 2))
    take(*ends, 0, np.array([2, 0]), 4, offset=2 * 2 * 4)
    expected = [[0, 0], [0, 0], [5, 6], [1, 2], [0, 0]]
    assert target.host((5, 2), 4).tolist() == expected
