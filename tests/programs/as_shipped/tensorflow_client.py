#!/usr/bin/env python3
"""TensorFlow's cases on the GPU. NumPy, or TensorFlow on the CPU, has the reference."""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402
from digits import digits  # noqa: E402

if not tf.config.list_physical_devices("GPU"):
    sys.exit("TensorFlow sees no GPU")
tf.config.experimental.enable_tensor_float_32_execution(False)
RANDOM = numpy.random.default_rng(7)
A = RANDOM.random((32, 16), dtype=numpy.float32)
B = RANDOM.random((16, 8), dtype=numpy.float32)


def on(device, function):
    with tf.device(device):
        return function()


def on_gpu(function):
    """The function's tensor, which the GPU has computed."""
    result = on("/GPU:0", function)
    assert "GPU" in result.device, result.device
    return result.numpy()


@case
def elementwise():
    close(on_gpu(lambda: tf.exp(tf.constant(A)) + tf.sin(tf.constant(A))), numpy.exp(A) + numpy.sin(A))


@case
def reductions():
    close(on_gpu(lambda: tf.reduce_sum(tf.constant(A))), A.sum(dtype=numpy.float64))
    equal(on_gpu(lambda: tf.argmax(tf.constant(A), axis=1)), A.argmax(axis=1))


@case
def matrix_product():
    close(on_gpu(lambda: tf.matmul(tf.constant(A), tf.constant(B))), A @ B)


@case
def convolution():
    pictures = RANDOM.random((2, 12, 12, 3), dtype=numpy.float32)
    kernel = RANDOM.random((3, 3, 3, 4), dtype=numpy.float32)
    windows = numpy.lib.stride_tricks.sliding_window_view(pictures, (3, 3), axis=(1, 2))
    close(on_gpu(lambda: tf.nn.conv2d(tf.constant(pictures), tf.constant(kernel), 1, "VALID")),
          numpy.einsum("nhwcij,ijco->nhwo", windows, kernel), 1e-4)


@case
def gather_and_scatter():
    indices = RANDOM.integers(0, 32, 100).astype(numpy.int32)
    equal(on_gpu(lambda: tf.gather(tf.constant(A), tf.constant(indices))), A[indices])
    ones = numpy.ones(100, numpy.float32)
    equal(on_gpu(lambda: tf.math.unsorted_segment_sum(tf.constant(ones), tf.constant(indices), 32)),
          numpy.bincount(indices, minlength=32).astype(numpy.float32))


@case
def random_numbers():
    drawn = on_gpu(lambda: tf.random.stateless_uniform([4000], seed=[1, 2]))
    assert 0 <= drawn.min() and drawn.max() < 1 and abs(drawn.mean() - 0.5) < 0.03


@case
def gradient():
    small = B * numpy.float32(0.05)  # Where tanh is not yet flat.

    def compute():
        weights = tf.Variable(small)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(tf.matmul(tf.constant(A), weights)) ** 2)
        return tape.gradient(loss, weights)

    hidden = numpy.tanh(A @ small)
    close(on_gpu(compute), A.T @ (2 * hidden * (1 - hidden ** 2)) / hidden.size, 1e-4)


@case
def compiled_function():
    """A function that TensorFlow runs as a graph of its own."""
    @tf.function
    def compute(x):
        return tf.nn.softmax(tf.matmul(x, tf.constant(B)) * 2)

    scores = A @ B * 2
    shifted = numpy.exp(scores - scores.max(axis=1, keepdims=True))
    close(on_gpu(lambda: compute(tf.constant(A))), shifted / shifted.sum(axis=1, keepdims=True))


@case
def function_of_xla():
    @tf.function(jit_compile=True)
    def compute(x):
        return tf.sin(x) * 2 + tf.reduce_sum(x, axis=1, keepdims=True)

    close(on_gpu(lambda: compute(tf.constant(A))), numpy.sin(A) * 2 + A.sum(axis=1, keepdims=True))


def small_model(device, layers, pictures, labels, epochs):
    tf.keras.utils.set_random_seed(1)
    with tf.device(device):
        model = tf.keras.Sequential([tf.keras.layers.Input(pictures.shape[1:]), *layers()])
        model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
                      jit_compile=False)
        history = model.fit(pictures, labels, batch_size=100, epochs=epochs, verbose=0, shuffle=False)
    return model, history.history["loss"]


@case
def convolutional_model():
    def layers():
        return [tf.keras.layers.Reshape((8, 8, 1)), tf.keras.layers.Conv2D(4, 3, activation="relu"),
                tf.keras.layers.MaxPooling2D(), tf.keras.layers.Flatten(), tf.keras.layers.Dense(10)]

    pictures, labels, _, _ = digits()
    losses = [small_model(device, layers, pictures[:200], labels[:200], 2)[1] for device in ("/GPU:0", "/CPU:0")]
    close(losses[0], losses[1], 1e-4)


@case
def training_on_digits():
    def layers():
        return [tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)]

    pictures, labels, others, other_labels = digits()
    model, _ = small_model("/GPU:0", layers, pictures, labels, 25)
    accuracy = on("/GPU:0", lambda: model.evaluate(others, other_labels, verbose=0)[1])
    print(f"accuracy on held-out digits: {100 * accuracy:.1f}%")
    assert accuracy > 0.93, accuracy


if __name__ == "__main__":
    main()
