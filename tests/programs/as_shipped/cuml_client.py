#!/usr/bin/env python3
"""cuML's cases: models on the GPU, compared with NumPy and with the model's own truth."""
import os
import sys

import cuml
import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

RANDOM = numpy.random.default_rng(6)
X = RANDOM.random((200, 4), dtype=numpy.float32)
TRUTH = numpy.array([1, 2, 3, 4], numpy.float32)


@case
def linear_regression():
    model = cuml.LinearRegression(algorithm="eig").fit(X, X @ TRUTH + 0.5)
    close(model.coef_, TRUTH, 1e-3)


@case
def k_means():
    points = numpy.vstack([X * 0.1, X * 0.1 + 5]).astype(numpy.float32)
    model = cuml.KMeans(n_clusters=2, random_state=0, n_init=1).fit(points)
    centres = numpy.sort(numpy.asarray(model.cluster_centers_), axis=0)
    close(centres, [points[:200].mean(axis=0), points[200:].mean(axis=0)], 1e-3)


@case
def principal_components():
    said = numpy.asarray(cuml.PCA(n_components=2).fit(X).explained_variance_)
    close(said, numpy.sort(numpy.linalg.eigvalsh(numpy.cov(X.T)))[::-1][:2], 1e-3)


@case
def nearest_neighbours():
    _, indices = cuml.neighbors.NearestNeighbors(n_neighbors=2).fit(X).kneighbors(X)
    distances = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    equal(numpy.asarray(indices)[:, 1], numpy.argsort(distances, axis=1)[:, 1])


@case
def logistic_regression():
    labels = (X @ TRUTH > 5).astype(numpy.float32)
    model = cuml.LogisticRegression().fit(X, labels)
    assert numpy.mean(numpy.asarray(model.predict(X)) == labels) > 0.9


if __name__ == "__main__":
    main()
