#!/usr/bin/env python3
"""JAX's cases: XLA compiles each for the GPU, and NumPy has the reference."""
import os
import sys

import jax
import jax._src.hardware_utils
import jax.numpy as jnp
import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402
from digits import digits  # noqa: E402

if "CASES_WITHOUT_DEVICE_FILES" in os.environ:
    # JAX takes the CPU where /dev/nvidia0 is missing. gpurun shows that file, the emulated device does not.
    jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True
if jax.default_backend() != "gpu":
    sys.exit(f"JAX computes on {jax.default_backend()}")
RANDOM = numpy.random.default_rng(7)
A = RANDOM.random((64, 48), dtype=numpy.float32)
B = RANDOM.random((48, 32), dtype=numpy.float32)
EXACT = jax.lax.Precision.HIGHEST


@case
def elementwise():
    close(jnp.sin(A) * 2 + jnp.exp(-A), numpy.sin(A) * 2 + numpy.exp(-A))


@case
def reductions():
    close(jnp.sum(A), numpy.sum(A, dtype=numpy.float64), 1e-5)
    equal(jnp.max(A, axis=1), A.max(axis=1))
    equal(jnp.argmin(A, axis=0), A.argmin(axis=0))


@case
def fused_softmax():
    shifted = numpy.exp(A - A.max(axis=1, keepdims=True))
    close(jax.jit(lambda x: jax.nn.softmax(x, axis=1))(A), shifted / shifted.sum(axis=1, keepdims=True))


@case
def matrix_product():
    close(jnp.matmul(A, B, precision=EXACT), A @ B)


@case
def batched_product():
    left, right = RANDOM.random((5, 16, 8), dtype=numpy.float32), RANDOM.random((5, 8, 12), dtype=numpy.float32)
    close(jnp.einsum("bij,bjk->bik", left, right, precision=EXACT), left @ right)


@case
def gradient():
    def loss(weights):
        return jnp.mean(jnp.tanh(jnp.matmul(A, weights, precision=EXACT)) ** 2)

    weights = B * numpy.float32(0.05)  # Where tanh is not yet flat.
    hidden = numpy.tanh(A @ weights)
    close(jax.jit(jax.grad(loss))(weights), A.T @ (2 * hidden * (1 - hidden ** 2)) / hidden.size, 1e-4)


@case
def sorting():
    equal(jnp.sort(A.ravel()), numpy.sort(A.ravel()))
    equal(jnp.argsort(A[0]), numpy.argsort(A[0]))


@case
def convolution():
    pictures = RANDOM.random((2, 3, 9, 9), dtype=numpy.float32)
    kernel = RANDOM.random((4, 3, 3, 3), dtype=numpy.float32)
    windows = numpy.lib.stride_tricks.sliding_window_view(pictures, (3, 3), axis=(2, 3))
    close(jax.lax.conv(pictures, kernel, (1, 1), "VALID", precision=EXACT),
          numpy.einsum("nchwij,ocij->nohw", windows, kernel), 1e-4)


@case
def linear_algebra():
    square = A.T @ A + numpy.eye(48, dtype=numpy.float32)
    close(jnp.linalg.cholesky(square), numpy.linalg.cholesky(square), 1e-4)
    close(jnp.linalg.solve(square, B), numpy.linalg.solve(square, B), 1e-3)


@case
def fourier_transform():
    close(jnp.fft.fft(A, axis=1), numpy.fft.fft(A, axis=1), 1e-4)


@case
def loops_on_the_device():
    def step(carry, row):
        return carry * 0.5 + row, carry.sum()

    carry, sums = numpy.zeros(48, numpy.float32), []
    for row in A:
        sums.append(carry.sum())
        carry = carry * numpy.float32(0.5) + row
    last, said = jax.lax.scan(step, jnp.zeros(48), A)
    close(last, carry)
    close(said, numpy.array(sums), 1e-4)
    equal(jax.lax.while_loop(lambda value: value < 1000, lambda value: value * 3, 1), 2187)


@case
def scatter_and_gather():
    indices = RANDOM.integers(0, 64, 200)
    counts = jnp.zeros(64, jnp.int32).at[indices].add(1)
    equal(counts, numpy.bincount(indices, minlength=64))
    equal(jnp.take(A, indices, axis=0), A[indices])


@case
def vectorised_map():
    close(jax.vmap(lambda row: jnp.cumsum(row)[-1])(A), A.sum(axis=1), 1e-5)


@case
def half_precision():
    close(jnp.asarray(A, jnp.bfloat16).astype(jnp.float32), A, 1e-2)
    close(jnp.matmul(A.astype(numpy.float16), B.astype(numpy.float16)).astype(jnp.float32), A @ B, 2e-3)


@case
def random_numbers():
    drawn = numpy.asarray(jax.random.uniform(jax.random.key(0), (4000,)))
    assert 0 <= drawn.min() and drawn.max() < 1 and abs(drawn.mean() - 0.5) < 0.03
    equal(jax.random.uniform(jax.random.key(0), (4000,)), drawn)


@case
def one_step_of_many_kernels():
    """Several kernels in one program: XLA runs them as a command buffer, which is a graph."""
    def step(x, w):
        for _ in range(4):
            x = jnp.tanh(jnp.matmul(x, w, precision=EXACT))
        return x, jnp.sort(x, axis=1)

    weights = RANDOM.standard_normal((48, 48)).astype(numpy.float32) * 0.2
    reference = A
    for _ in range(4):
        reference = numpy.tanh(reference @ weights)
    step = jax.jit(step)
    for _ in range(3):
        last, ordered = step(A, weights)
    close(last, reference, 1e-4)
    close(ordered, numpy.sort(reference, axis=1), 1e-4)


@case
def training_on_digits():
    pictures, labels, others, other_labels = digits()
    keys = jax.random.split(jax.random.key(1), 2)
    parameters = [(jax.random.normal(keys[0], (64, 64)) * 0.15, jnp.zeros(64)),
                  (jax.random.normal(keys[1], (64, 10)) * 0.15, jnp.zeros(10))]

    def scores(parameters, x):
        (w1, b1), (w2, b2) = parameters
        return jnp.maximum(x @ w1 + b1, 0) @ w2 + b2

    def loss(parameters, x, y):
        return -jnp.mean(jax.nn.log_softmax(scores(parameters, x))[jnp.arange(len(y)), y])

    @jax.jit
    def step(parameters, x, y):
        return jax.tree.map(lambda p, g: p - 0.3 * g, parameters, jax.grad(loss)(parameters, x, y))

    for _ in range(25):
        for start in range(0, len(labels), 100):
            parameters = step(parameters, pictures[start:start + 100], labels[start:start + 100])
    accuracy = float(jnp.mean(scores(parameters, others).argmax(axis=1) == other_labels))
    print(f"accuracy on held-out digits: {100 * accuracy:.1f}%")
    assert accuracy > 0.94, accuracy


if __name__ == "__main__":
    main()
