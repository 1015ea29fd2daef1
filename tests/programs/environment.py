#!/usr/bin/env python3
"""Environment: makes a virtual environment with packages of PyPI. FOLDER/ready exists once it is
complete.

usage: environment.py FOLDER PACKAGE==VERSION ...
Exit status 77: no network (reported), so the tests that need it are skipped.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fetching  # noqa: E402


def main(folder, *packages):
    ready = os.path.join(folder, "ready")
    if os.path.exists(ready):
        return
    install = fetching.make_environment(folder)
    fetching.fetch(f"{' '.join(packages)} (PyPI)", [*install, *packages])
    with open(ready, "w", encoding="utf-8"):
        pass


main(*sys.argv[1:])
