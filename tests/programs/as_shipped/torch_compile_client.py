#!/usr/bin/env python3
"""torch.compile's cases: functions that inductor compiles for the GPU by Triton. PyTorch on the CPU
has the reference. PyTorch's own kernels have no PTX, so the cases use compiled code alone."""
import os
import sys

import torch
import torch._inductor.config

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402
from digits import digits  # noqa: E402

torch.manual_seed(3)
A = torch.rand(64, 100)
torch._dynamo.config.cache_size_limit = 64
# Inductor folds constants, and measures products with padding, by kernels of PyTorch's own.
torch._inductor.config.joint_graph_constant_folding = False
torch._inductor.config.shape_padding = False


def compiled(function, *tensors, **words):
    torch._dynamo.reset()
    with torch.no_grad():
        return torch.compile(function, **words)(*(tensor.cuda() for tensor in tensors)).cpu()


@case
def elementwise():
    close(compiled(lambda x: torch.sin(x) * 2 + torch.exp(-x), A), torch.sin(A) * 2 + torch.exp(-A))


@case
def reductions():
    close(compiled(lambda x: x.sum(1), A), A.double().sum(1), 1e-5)
    equal(compiled(lambda x: x.amax(1), A), A.amax(1))


@case
def softmax():
    close(compiled(lambda x: torch.softmax(torch.sin(x) * 2 + 1, dim=1), A), torch.softmax(torch.sin(A) * 2 + 1, dim=1))


@case
def layer_norm():
    def norm(x, weight, bias):
        return torch.nn.functional.layer_norm(x, (100,), weight, bias)

    weight, bias = torch.rand(100), torch.rand(100)
    close(compiled(norm, A, weight, bias), norm(A, weight, bias), 1e-4)


@case
def gelu_and_residual():
    def block(x, y):
        return torch.nn.functional.gelu(x + y) + x

    close(compiled(block, A, A.flip(0)), block(A, A.flip(0)), 1e-5)


@case
def half_precision():
    half = A.half()
    close(compiled(lambda x: (x * 3 + 1).tanh(), half).float(), (half.float() * 3 + 1).tanh(), 2e-3)


@case
def gathers():
    index = torch.randint(0, 64, (200,))
    equal(compiled(lambda x, i: x[i] * 2, A, index), A[index] * 2)


@case
def several_shapes():
    torch._dynamo.reset()
    function = torch.compile(lambda x: (x * x).sum(-1), dynamic=True)
    with torch.no_grad():
        for rows in (3, 17, 64):
            close(function(A[:rows].cuda()).cpu(), (A[:rows].double() ** 2).sum(-1), 1e-5)


@case
def gradient():
    def loss(x, w):
        return torch.tanh(x * w).sum()

    weight = torch.rand(100)
    said = []
    for device in ("cuda", "cpu"):
        torch._dynamo.reset()
        parameter = weight.to(device).requires_grad_()
        function = torch.compile(loss) if device == "cuda" else loss
        # PyTorch would make the ones with a kernel of its own.
        gradients, = torch.autograd.grad(function(A.to(device), parameter), parameter, torch.ones(()).to(device))
        said.append(gradients.cpu())
    close(said[0], said[1], 1e-4)


@case
def training_on_digits():
    """A step is one compiled function: forward, backward and the new parameters."""
    def scores(w1, b1, w2, b2, x):
        return torch.relu(x @ w1 + b1) @ w2 + b2

    def loss(w1, b1, w2, b2, x, y):
        return torch.nn.functional.cross_entropy(scores(w1, b1, w2, b2, x), y)

    @torch.compile
    def step(parameters, x, y):
        gradients = torch.func.grad(loss, argnums=(0, 1, 2, 3))(*parameters, x, y)
        return [each - 0.3 * gradient for each, gradient in zip(parameters, gradients)]

    pictures, labels, others, other_labels = (torch.from_numpy(each) for each in digits())
    parameters = [torch.randn(64, 64) * 0.15, torch.zeros(64), torch.randn(64, 10) * 0.15, torch.zeros(10)]
    parameters = [each.cuda() for each in parameters]
    batches = [(pictures[at:at + 100].cuda(), labels[at:at + 100].long().cuda()) for at in range(0, 1400, 100)]
    torch._dynamo.reset()
    with torch.no_grad():
        for _ in range(20):
            for x, y in batches:
                parameters = step(parameters, x, y)
        said = scores(*(each.cpu() for each in parameters), others).argmax(1)
    accuracy = float((said == other_labels).double().mean())
    print(f"accuracy on held-out digits: {100 * accuracy:.1f}%")
    assert accuracy > 0.94, accuracy


if __name__ == "__main__":
    main()
