#!/usr/bin/env python3
"""Warp's cases: kernels in Python that Warp compiles, compared with NumPy."""
import os
import sys

import numpy
import warp as wp

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

RANDOM = numpy.random.default_rng(9)
DEVICE = "cuda:0"
POINTS = RANDOM.random((300, 3), dtype=numpy.float32)
TILE = 16


def on(values, *dtype, **more):
    return wp.array(values, *dtype, device=DEVICE, **more)


def launch(kernel, count, *inputs, **more):
    wp.launch(kernel, dim=count, inputs=list(inputs), device=DEVICE, **more)


@wp.kernel
def scale_and_add(factor: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    at = wp.tid()
    y[at] = factor * x[at] + y[at]


@case
def elements():
    x, y = POINTS[:, 0], POINTS[:, 1]
    result = on(y)
    launch(scale_and_add, len(x), 2.5, on(x), result)
    close(result.numpy(), 2.5 * x + y)


@wp.kernel
def rotate(turn: wp.quat, points: wp.array(dtype=wp.vec3), turned: wp.array(dtype=wp.vec3)):
    at = wp.tid()
    turned[at] = wp.quat_rotate(turn, points[at])


@case
def vectors_and_rotations():
    result = on(numpy.zeros_like(POINTS), wp.vec3)
    launch(rotate, len(POINTS), wp.quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), 0.5), on(POINTS, wp.vec3), result)
    c, s = numpy.cos(0.5), numpy.sin(0.5)
    close(result.numpy(), POINTS @ numpy.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]), 1e-5)


@wp.kernel
def count_by_bin(values: wp.array(dtype=float), bins: wp.array(dtype=int)):
    wp.atomic_add(bins, int(values[wp.tid()] * 10.0), 1)


@case
def atomics():
    bins = on(numpy.zeros(10, numpy.int32))
    launch(count_by_bin, len(POINTS), on(POINTS[:, 0]), bins)
    equal(bins.numpy(), numpy.histogram((POINTS[:, 0] * numpy.float32(10)).astype(int), numpy.arange(11))[0])


@wp.kernel
def square_sum(x: wp.array(dtype=float), loss: wp.array(dtype=float)):
    at = wp.tid()
    wp.atomic_add(loss, 0, x[at] * x[at] * wp.sin(x[at]))


@case
def gradients():
    x = on(POINTS[:, 2], float, requires_grad=True)
    loss = on(numpy.zeros(1, numpy.float32), float, requires_grad=True)
    with wp.Tape() as tape:
        launch(square_sum, len(POINTS), x, loss)
    tape.backward(loss)
    v = POINTS[:, 2]
    close(x.grad.numpy(), 2 * v * numpy.sin(v) + v * v * numpy.cos(v), 1e-5)


@wp.kernel
def tile_product(a: wp.array2d(dtype=float), b: wp.array2d(dtype=float), c: wp.array2d(dtype=float)):
    row, column = wp.tid()
    total = wp.tile_zeros(shape=(TILE, TILE), dtype=float)
    for step in range(3):
        left = wp.tile_load(a, shape=(TILE, TILE), offset=(row * TILE, step * TILE))
        right = wp.tile_load(b, shape=(TILE, TILE), offset=(step * TILE, column * TILE))
        wp.tile_matmul(left, right, total)
    wp.tile_store(c, total, offset=(row * TILE, column * TILE))


@case
def products_of_tiles():
    a, b = (RANDOM.standard_normal((48, 48), dtype=numpy.float32) for _ in range(2))
    c = on(numpy.zeros((48, 48), numpy.float32))
    wp.launch_tiled(tile_product, dim=(3, 3), inputs=[on(a), on(b), c], block_dim=64, device=DEVICE)
    close(c.numpy(), a @ b, 1e-5)


@case
def graphs():
    x, y = on(numpy.ones(100, numpy.float32)), on(numpy.zeros(100, numpy.float32))
    wp.load_module(device=DEVICE)
    with wp.ScopedCapture(device=DEVICE) as capture:
        for _ in range(4):
            launch(scale_and_add, 100, 0.5, x, y)
    for _ in range(3):
        wp.capture_launch(capture.graph)
    close(y.numpy(), numpy.full(100, 6.0))


@case
def scans_and_sorts():
    x = RANDOM.integers(0, 1000, 500).astype(numpy.int32)
    result = on(numpy.zeros_like(x))
    wp.utils.array_scan(on(x), result, inclusive=True)
    equal(result.numpy(), numpy.cumsum(x))
    keys, values = on(numpy.resize(x, 1000)), on(numpy.arange(1000, dtype=numpy.int32))
    wp.utils.radix_sort_pairs(keys, values, 500)
    equal(keys.numpy()[:500], numpy.sort(x))
    equal(values.numpy()[:500], numpy.argsort(x, kind="stable"))
    close(wp.utils.array_sum(on(POINTS[:, 0])), POINTS[:, 0].sum(), 1e-5)


@wp.kernel
def nearest_on_mesh(mesh: wp.uint64, points: wp.array(dtype=wp.vec3), heights: wp.array(dtype=float)):
    at = wp.tid()
    found = wp.mesh_query_point(mesh, points[at], 10.0)
    if found.result:
        heights[at] = wp.length(points[at] - wp.mesh_eval_position(mesh, found.face, found.u, found.v))


@case
def meshes():
    corners = on(numpy.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], numpy.float32), wp.vec3)
    mesh = wp.Mesh(corners, on(numpy.array([0, 1, 2, 0, 2, 3], numpy.int32), int))
    heights = on(numpy.full(len(POINTS), -1, numpy.float32))
    launch(nearest_on_mesh, len(POINTS), mesh.id, on(POINTS, wp.vec3), heights)
    close(heights.numpy(), POINTS[:, 2], 1e-5)


@wp.kernel
def count_near(grid: wp.uint64, points: wp.array(dtype=wp.vec3), radius: float, counts: wp.array(dtype=int)):
    at = wp.tid()
    for other in wp.hash_grid_query(grid, points[at], radius):
        if wp.length(points[at] - points[other]) < radius:
            counts[at] += 1


@case
def hash_grids():
    points, grid = on(POINTS, wp.vec3), wp.HashGrid(16, 16, 16, device=DEVICE)
    grid.build(points, 0.2)
    counts = on(numpy.zeros(len(POINTS), numpy.int32))
    launch(count_near, len(POINTS), grid.id, points, 0.2, counts)
    distances = numpy.linalg.norm(POINTS[:, None] - POINTS[None], axis=2)
    close(counts.numpy(), (distances < 0.2).sum(axis=1), 0.05)  # Rounding decides at the radius.


@wp.kernel
def roll(seed: int, values: wp.array(dtype=float)):
    at = wp.tid()
    values[at] = wp.randf(wp.rand_init(seed, at))


@case
def random_numbers_are_those_of_the_cpu():
    results = []
    for device in (DEVICE, "cpu"):
        values = wp.zeros(1000, dtype=float, device=device)
        wp.launch(roll, dim=1000, inputs=[42, values], device=device)
        results.append(values.numpy())
    equal(results[0], results[1])
    assert 0.4 < results[0].mean() < 0.6


if __name__ == "__main__":
    main()
