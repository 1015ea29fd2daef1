#!/usr/bin/env python3
"""Triton's cases: kernels that Triton compiles at run time, on tensors of PyTorch. PyTorch on the CPU
has the reference."""
import os
import sys

import torch
import triton
import triton.language as tl

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

torch.manual_seed(3)
A = torch.rand(64, 96)
B = torch.rand(96, 32)


@triton.jit
def add_kernel(left, right, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(left + at, inside) + tl.load(right + at, inside), inside)


@triton.jit
def softmax_kernel(source, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(source + row * columns + at, at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), at < columns)


@triton.jit
def product_kernel(left, right, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    first = tl.load(left + rows[:, None] * K + inner[None, :])
    second = tl.load(right + inner[:, None] * N + columns[None, :])
    tl.store(out + rows[:, None] * N + columns[None, :], tl.dot(first, second))


@triton.jit
def histogram_kernel(values, counts, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.atomic_add(counts + tl.load(values + at, inside, other=0), 1, inside)


@triton.jit
def scan_kernel(source, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(source + at), axis=0))


def product(left, right, kind):
    out = torch.empty(32, 16, device="cuda", dtype=kind)
    product_kernel[(1,)](left.cuda(), right.cuda(), out, 32, 16, 64)
    return out.cpu()


@case
def vector_add():
    left, right = torch.rand(5000), torch.rand(5000)
    out = torch.empty(5000, device="cuda")
    add_kernel[(triton.cdiv(5000, 512),)](left.cuda(), right.cuda(), out, 5000, BLOCK=512)
    equal(out.cpu(), left + right)


@case
def softmax():
    out = torch.empty(64, 96, device="cuda")
    softmax_kernel[(64,)](A.cuda(), out, 96, BLOCK=128)
    close(out.cpu(), torch.softmax(A, dim=1))


@case
def product_of_half_precision():
    left, right = torch.rand(32, 64).half(), torch.rand(64, 16).half()
    close(product(left, right, torch.float32), left.float() @ right.float(), 1e-3)


@case
def product_of_bfloat16():
    left, right = torch.rand(32, 64).bfloat16(), torch.rand(64, 16).bfloat16()
    close(product(left, right, torch.float32), left.float() @ right.float(), 1e-3)


@case
def product_of_integers():
    left = torch.randint(-9, 9, (32, 64), dtype=torch.int8)
    right = torch.randint(-9, 9, (64, 16), dtype=torch.int8)
    equal(product(left, right, torch.int32), left.int() @ right.int())


@case
def product_of_tf32():
    left, right = torch.rand(32, 64), torch.rand(64, 16)
    close(product(left, right, torch.float32), left @ right, 2e-3)


@case
def atomics():
    values = torch.randint(0, 32, (3000,), dtype=torch.int32)
    counts = torch.zeros(32, dtype=torch.int32).cuda()
    histogram_kernel[(triton.cdiv(3000, 256),)](values.cuda(), counts, 3000, BLOCK=256)
    equal(counts.cpu(), torch.bincount(values, minlength=32).int())


@case
def scan():
    values = torch.rand(1024)
    out = torch.empty(1024, device="cuda")
    scan_kernel[(1,)](values.cuda(), out, BLOCK=1024)
    close(out.cpu(), torch.cumsum(values.double(), 0), 1e-5)


@case
def tuned_kernel():
    """Triton measures two forms with events and takes the quicker one."""
    tuned = triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["count"])(add_kernel)
    left, right = torch.rand(2000), torch.rand(2000)
    out = torch.zeros(2000).cuda()
    # PyTorch's own kernels have no PTX: the measurement must not clear a cache with one.
    tuned.do_bench = lambda run, quantiles=None: triton.testing.do_bench_cudagraph(run, rep=1, quantiles=quantiles)
    tuned[lambda chosen: (triton.cdiv(2000, chosen["BLOCK"]),)](left.cuda(), right.cuda(), out, 2000)
    equal(out.cpu(), left + right)


if __name__ == "__main__":
    main()
