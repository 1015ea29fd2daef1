"""Digits: scikit-learn's pictures of 1,797 handwritten digits, split for a small training."""
import numpy
from sklearn.datasets import load_digits


def digits():
    """Pictures and labels to train with, and others to test with."""
    pictures, labels = load_digits(return_X_y=True)
    order = numpy.random.default_rng(0).permutation(len(labels))
    pictures, labels = (pictures[order] / 16).astype(numpy.float32), labels[order].astype(numpy.int32)
    return pictures[:1400], labels[:1400], pictures[1400:], labels[1400:]
