#!/usr/bin/env python3
"""Runs a test's command in a build with a sanitizer. A report of any process of the run, at any depth
(program, gpurun, gpurund, gpurun-worker), fails the run and is shown.

usage: watched.py COMMAND ARG...    Exit status: the command's, or 1 if it was 0 and there is a report.
"""
import os
import subprocess
import sys

import reports


def main():
    with reports.collected() as collection:
        status = subprocess.run(sys.argv[1:], env=collection.environment(dict(os.environ)),
                                check=False).returncode
        found = collection.found()
    sys.stdout.flush()
    for name, text in found.items():
        print(f"WRONG: the sanitizer reports of {name}:\n{text}", flush=True)
    status = 128 - status if status < 0 else status
    return 1 if found and status in (0, 77) else status


if __name__ == "__main__":
    sys.exit(main())
