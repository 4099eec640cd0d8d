"""The vector building blocks equal numpy."""

import numpy as np
import pytest

from cliquewise._kernels import simd


@pytest.mark.parametrize(("n", "width"), [(1, 8), (7, 8), (8, 8), (9, 16), (16, 16), (45, 48)])
def test_padding_is_the_next_multiple_of_the_vector(n, width):
    assert simd.padded(n) == width


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 3, 8, 10, 23])
def test_products_equal_numpy(n, dtype):
    rng = np.random.default_rng(n)
    width = simd.padded(n)
    like = np.empty(0, dtype)
    matrix = simd.aligned_zeros(width * width, like).reshape(width, width)
    matrix[:n, :n] = rng.normal(size=(n, n))
    vector = simd.aligned_zeros(3 * width, like)
    vector[width : width + n] = rng.normal(size=n)
    expected = vector[width : 2 * width] @ matrix
    simd.vector_matrix(vector, width, matrix, n, vector, 2 * width)
    np.testing.assert_allclose(vector[2 * width :], expected, rtol=1e-5, atol=1e-6)

    left = simd.aligned_zeros(5 * width, like).reshape(5, width)
    right = simd.aligned_zeros(5 * width, like).reshape(5, width)
    left[:, :n], right[:, :n] = rng.normal(size=(2, 5, n))
    expected = matrix + left[1:4].T @ right[1:4]
    simd.add_outer_products(left[1:], right[1:], 3, n, matrix)
    np.testing.assert_allclose(matrix[:n], expected[:n], rtol=1e-5, atol=1e-5)


def test_scratch_starts_on_a_cache_line():
    for _ in range(5):
        assert simd.aligned_zeros(100, np.empty(0)).ctypes.data % 64 == 0
