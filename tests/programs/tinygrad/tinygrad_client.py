"""tinygrad, unmodified, against numpy: matmul, softmax, convolution with backward.

tinygrad opens libcuda by ctypes. DEV chooses the device and CUDA renderer (C through NVRTC, or PTX).
"""
import sys

import numpy
from tinygrad import Device, Tensor


def close(name, got, expected, tolerance=1e-4):
    good = got.shape == expected.shape and numpy.allclose(got, expected, rtol=tolerance, atol=tolerance)
    print(f"{name}: {'right' if good else 'WRONG'}")
    return good


def convolve(images, weights):
    count, _, height, width = images.shape
    size = weights.shape[2]
    out = numpy.zeros((count, weights.shape[0], height - size + 1, width - size + 1), numpy.float32)
    for y in range(out.shape[2]):
        for x in range(out.shape[3]):
            window = images[:, :, y:y + size, x:x + size]
            out[:, :, y, x] = numpy.tensordot(window, weights, axes=([1, 2, 3], [1, 2, 3]))
    return out


def weight_gradient(images, weights):
    """Of sum(relu(conv)): each active output adds the window that it saw."""
    active = convolve(images, weights) > 0
    gradient = numpy.zeros_like(weights)
    size = weights.shape[2]
    for y in range(active.shape[2]):
        for x in range(active.shape[3]):
            window = images[:, :, y:y + size, x:x + size]
            gradient += numpy.tensordot(active[:, :, y, x].astype(numpy.float32), window, axes=([0], [0]))
    return gradient


def main():
    if not Device.DEFAULT.startswith("CUDA"):
        print(f"not on CUDA but {Device.DEFAULT}")
        return 1
    random = numpy.random.default_rng(5)
    a = random.random((64, 48), dtype=numpy.float32)
    b = random.random((48, 32), dtype=numpy.float32)
    good = close("matmul", (Tensor(a) @ Tensor(b)).numpy(), a @ b)

    exponent = numpy.exp(a - a.max(axis=1, keepdims=True))
    good &= close("softmax", Tensor(a).softmax(axis=1).numpy(),
                  exponent / exponent.sum(axis=1, keepdims=True))

    images = random.standard_normal((2, 3, 10, 10), dtype=numpy.float32)
    weights = random.standard_normal((4, 3, 3, 3), dtype=numpy.float32)
    tensor = Tensor(weights)
    output = Tensor(images).conv2d(tensor).relu()
    gradient = output.sum().gradient(tensor)[0]
    good &= close("convolution", output.numpy(), numpy.maximum(convolve(images, weights), 0), 1e-3)
    good &= close("its gradient", gradient.numpy(), weight_gradient(images, weights), 1e-3)
    print("PASSED" if good else "FAILED")
    return 0 if good else 1


sys.exit(main())
