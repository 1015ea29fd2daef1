#!/usr/bin/env python3
"""Threats have tests: docs/security.md promises nothing without a test that shows it. The last
column of each table row names its tests. Each is a test of this build, a case within one, a session
or an action.

usage: threats.py SOURCE BUILD
"""
import fnmatch
import glob
import os
import re
import subprocess
import sys

PAGE = "docs/security.md"
# Tables that explain words and list no threats.
EXPLAINS = {"word"}


def rows(text):
    """(line number, threat, last column) of each row of each table of threats."""
    header = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip() for cell in line.strip("| \n").split("|")]
        if header is None:
            header = cells
        elif header[0] not in EXPLAINS and not set(line) <= set("|- :"):
            yield number, cells[0], cells[-1]


def tests_of(build):
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True)
    return set(re.findall(r"Test +#\d+: (\S+)", listed.stdout))


def cases_of(source):
    """Names within tests: of Python's and GoogleTest's cases, of sessions, of actions, and of files."""
    found = set()
    for pattern, expressions in (("tests/**/*.py", [r"def test_(\w+)"]),
                                 ("tests/**/*.cc", [r"TEST(?:_[FP])?\(\w+,\s*(\w+)\)"]),
                                 ("tests/hostile/*_sessions*.cc", [r'\{"(\w+)", "']),
                                 ("tests/hostile/code_test.py", [r'^    "(\w+)": \(', r'ask\("(\w+)"'])):
        for path in glob.glob(os.path.join(source, pattern), recursive=True):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for expression in expressions:
                found.update(re.findall(expression, text, re.M))
    found.update(os.path.basename(path) for path in glob.glob(os.path.join(source, "tests/hostile/*.cc")))
    return found


def is_there(name, tests, cases):
    # A test may have the name of its file, and a fuzz target its own name.
    forms = (name, "e2e_" + name, "fuzz_corpus_" + name, name.replace("fuzz_", "fuzz_corpus_", 1))
    return any(form in tests for form in forms) or bool(fnmatch.filter(cases, name))


def main(source, build):
    with open(os.path.join(source, PAGE), encoding="utf-8") as file:
        listed = list(rows(file.read()))
    tests, cases = tests_of(build), cases_of(source)
    wrong = []
    for number, threat, shown in listed:
        names = re.findall(r"`([^`]+)`", shown)
        if not names:
            wrong.append(f"{PAGE}:{number}: '{threat}' names no test")
        wrong += [f"{PAGE}:{number}: there is no '{name}'" for name in names if not is_there(name, tests, cases)]
    print("\n".join(wrong) or f"{len(listed)} threats, each with what shows it")
    return 1 if wrong or len(listed) < 40 else 0


sys.exit(main(*sys.argv[1:]))
