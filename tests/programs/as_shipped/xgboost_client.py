#!/usr/bin/env python3
"""XGBoost's cases: training and prediction on the GPU, compared with XGBoost on the CPU."""
import os
import sys

import numpy
import xgboost

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, main  # noqa: E402

RANDOM = numpy.random.default_rng(3)
X = RANDOM.random((2000, 12), dtype=numpy.float32)
Y = X[:, 0] * 3 + numpy.sin(X[:, 1] * 6) + X[:, 2] * X[:, 3]
LABELS = (Y > numpy.median(Y)).astype(numpy.int32)
CLASSES = numpy.digitize(Y, numpy.quantile(Y, [0.33, 0.66]))


def both(parameters, labels, rounds=10, matrix=xgboost.DMatrix, **words):
    """Predictions of a model of the GPU and of one of the CPU, each on its own device."""
    said = []
    for device in ("cuda", "cpu"):
        data = matrix(X, labels, **words)
        model = xgboost.train({"device": device, "tree_method": "hist", "seed": 1, **parameters}, data, rounds)
        assert device in str(model.save_config()), model.save_config()
        said.append(model.predict(data))
    return said


@case
def regression():
    gpu, cpu = both({"objective": "reg:squarederror", "max_depth": 5}, Y)
    close(gpu, cpu, 1e-3)
    assert numpy.mean((gpu - Y) ** 2) < 0.1 * numpy.var(Y)


@case
def classification():
    parameters = {"objective": "binary:logistic", "max_depth": 4}
    close(*both(parameters, LABELS, rounds=1), 1e-4)  # Later trees depend on how equal splits are chosen.
    for said in both(parameters, LABELS):
        assert numpy.mean((said > 0.5) == LABELS) > 0.93


@case
def several_classes():
    parameters = {"objective": "multi:softprob", "num_class": 3, "max_depth": 4}
    losses = []
    for said in both(parameters, CLASSES):
        assert numpy.mean(said.argmax(axis=1) == CLASSES) > 0.85
        losses.append(-numpy.mean(numpy.log(said[numpy.arange(len(CLASSES)), CLASSES])))
    assert abs(losses[0] - losses[1]) < 0.02 * losses[1], losses


@case
def quantile_matrix():
    gpu, cpu = both({"objective": "reg:squarederror", "max_depth": 6}, Y, matrix=xgboost.QuantileDMatrix)
    close(gpu, cpu, 1e-3)


@case
def missing_values():
    holes = X.copy()
    holes[RANDOM.random(X.shape) < 0.2] = numpy.nan
    said = []
    for device in ("cuda", "cpu"):
        data = xgboost.DMatrix(holes, Y)
        said.append(xgboost.train({"device": device, "max_depth": 5}, data, 10).predict(data))
    close(said[0], said[1], 1e-3)


@case
def ranking():
    groups = numpy.repeat(numpy.arange(40), 50)
    said = []
    for device in ("cuda", "cpu"):
        data = xgboost.DMatrix(X, CLASSES, qid=groups)
        model = xgboost.train({"device": device, "objective": "rank:ndcg", "eval_metric": "ndcg"}, data, 10)
        said.append(float(model.eval(data).rpartition(":")[2]))
    assert said[0] > 0.9 and abs(said[0] - said[1]) < 0.02, said


@case
def importances_and_shap():
    data = xgboost.DMatrix(X, Y)
    model = xgboost.train({"device": "cuda", "max_depth": 4}, data, 10)
    gpu = model.predict(data, pred_contribs=True)
    model.set_param({"device": "cpu"})
    close(gpu, model.predict(data, pred_contribs=True), 1e-4)


@case
def scikit_learn_interface():
    from xgboost import XGBClassifier
    model = XGBClassifier(device="cuda", n_estimators=10, max_depth=4, early_stopping_rounds=5)
    model.fit(X[:1500], LABELS[:1500], eval_set=[(X[1500:], LABELS[1500:])], verbose=False)
    assert model.score(X[1500:], LABELS[1500:]) > 0.85


if __name__ == "__main__":
    main()
