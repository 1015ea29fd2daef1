#!/usr/bin/env python3
"""cuDF's cases: data frames on the GPU, compared with pandas."""
import os
import sys

import cudf
import numpy
import pandas

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, close, equal, main  # noqa: E402

RANDOM = numpy.random.default_rng(4)
LEFT = pandas.DataFrame({"key": RANDOM.integers(0, 20, 300), "x": RANDOM.random(300)})
RIGHT = pandas.DataFrame({"key": numpy.arange(15), "y": RANDOM.random(15)})


@case
def there_and_back():
    pandas.testing.assert_frame_equal(cudf.DataFrame(LEFT).to_pandas(), LEFT)


@case
def arithmetic():
    close((cudf.DataFrame(LEFT)["x"] * 2 + 1).to_pandas(), LEFT["x"] * 2 + 1)


@case
def reductions():
    column = cudf.DataFrame(LEFT)["x"]
    close([column.sum(), column.mean(), column.max()], [LEFT["x"].sum(), LEFT["x"].mean(), LEFT["x"].max()])


@case
def sorting():
    equal(cudf.DataFrame(LEFT).sort_values("x")["x"].to_pandas(), LEFT.sort_values("x")["x"])


@case
def filtering():
    frame = cudf.DataFrame(LEFT)
    equal(frame[frame["x"] > 0.5].to_pandas(), LEFT[LEFT["x"] > 0.5])


@case
def joining():
    said = cudf.DataFrame(LEFT).merge(cudf.DataFrame(RIGHT), on="key").to_pandas().sort_values(["key", "x"])
    close(said, LEFT.merge(RIGHT, on="key").sort_values(["key", "x"]))


@case
def grouping():
    said = cudf.DataFrame(LEFT).groupby("key")["x"].mean().to_pandas().sort_index()
    close(said, LEFT.groupby("key")["x"].mean().sort_index())


@case
def texts():
    words = ["abc", "Def", "xyz", "gpu run"]
    assert cudf.Series(words).str.upper().to_pandas().tolist() == [word.upper() for word in words]


if __name__ == "__main__":
    main()
