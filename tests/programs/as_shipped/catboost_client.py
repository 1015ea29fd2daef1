#!/usr/bin/env python3
"""CatBoost's cases: boosted trees on small random data. The GPU's predictions are those of CatBoost
on the CPU, where both build the same trees, and otherwise as good."""
import os
import sys

import numpy
from catboost import CatBoostClassifier, CatBoostRanker, CatBoostRegressor, Pool
from catboost.utils import get_gpu_device_count

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

RANDOM = numpy.random.default_rng(8)
X = RANDOM.random((400, 6))
Y = X @ numpy.arange(1, 7) + 0.1 * RANDOM.standard_normal(400)
# Without chance and with the same scores, CPU and GPU choose the same splits.
SAME = {"iterations": 10, "depth": 3, "learning_rate": 0.3, "boosting_type": "Plain", "bootstrap_type": "No",
        "random_seed": 3, "random_strength": 0, "border_count": 32, "score_function": "L2", "verbose": False,
        "leaf_estimation_method": "Newton", "leaf_estimation_iterations": 1, "allow_writing_files": False}


def both(model, *data, **more):
    """The model that the GPU has trained, and that of the CPU."""
    return [model(**{**SAME, **more}, task_type=kind).fit(*data) for kind in ("GPU", "CPU")]


@case
def device_is_found():
    assert get_gpu_device_count() == 1, get_gpu_device_count()


@case
def regression():
    gpu, cpu = both(CatBoostRegressor, X, Y)
    close(gpu.predict(X), cpu.predict(X), 1e-4)


@case
def missing_values():
    holes = numpy.where(RANDOM.random(X.shape) < 0.2, numpy.nan, X)
    gpu, cpu = both(CatBoostRegressor, holes, Y)
    close(gpu.predict(holes), cpu.predict(holes), 1e-4)


@case
def classification():
    labels = (Y > numpy.median(Y)).astype(int)
    gpu, cpu = both(CatBoostClassifier, X, labels)
    close(gpu.predict_proba(X), cpu.predict_proba(X), 1e-4)


@case
def several_classes():
    labels = numpy.digitize(Y, numpy.quantile(Y, [0.33, 0.66]))
    gpu, cpu = both(CatBoostClassifier, X, labels, loss_function="MultiClass")
    right = [numpy.mean(numpy.ravel(model.predict(X)) == labels) for model in (gpu, cpu)]
    assert right[0] > 0.8 and abs(right[0] - right[1]) < 0.05, right


@case
def categories():
    words = numpy.array(["red", "green", "blue"], object)[RANDOM.integers(0, 3, 400)]
    values = (words == "red") * 2.0 + X[:, 0]
    table = [[word, number] for word, number in zip(words, X[:, 0])]
    gpu, _ = both(CatBoostRegressor, Pool(table, values, cat_features=[0]), iterations=30)
    error = numpy.sqrt(numpy.mean((gpu.predict(table) - values) ** 2))
    assert error < 0.3 * values.std(), error


@case
def deep_trees_by_leaves():
    gpu, cpu = both(CatBoostRegressor, X, Y, grow_policy="Lossguide", max_leaves=12, depth=6)
    errors = [numpy.sqrt(numpy.mean((model.predict(X) - Y) ** 2)) for model in (gpu, cpu)]
    assert abs(errors[0] - errors[1]) < 0.05 * Y.std(), errors


@case
def ranking():
    groups = numpy.repeat(numpy.arange(20), 20)
    gpu, _ = both(CatBoostRanker, Pool(X, Y / Y.max(), group_id=groups), loss_function="QueryRMSE")
    orders = [numpy.corrcoef(gpu.predict(X[groups == each]), Y[groups == each])[0, 1] for each in range(20)]
    assert numpy.mean(orders) > 0.8, orders


@case
def error_on_the_device_is_that_of_the_model():
    gpu, _ = both(CatBoostRegressor, X, Y)
    error = numpy.sqrt(numpy.mean((gpu.predict(X) - Y) ** 2))
    close(gpu.get_evals_result()["learn"]["RMSE"][-1], error, 1e-4)
    equal(gpu.tree_count_, SAME["iterations"])


if __name__ == "__main__":
    main()
