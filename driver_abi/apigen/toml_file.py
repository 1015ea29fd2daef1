"""Reads TOML with whatever reader this Python has."""

import sys

try:
    import tomllib as reader
except ImportError:  # Python 3.9 and 3.10.
    try:
        import tomli as reader
    except ImportError:
        sys.exit("apigen: this Python has no tomllib; use Python 3.11, or install python3-tomli")


def load(path):
    with open(path, "rb") as stream:
        try:
            return reader.load(stream)
        except reader.TOMLDecodeError as error:
            sys.exit("apigen: %s: %s" % (path, error))
