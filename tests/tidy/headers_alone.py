#!/usr/bin/env python3
"""Compiles each header alone (syntax only). A header that needs another's includes breaks the first
file that includes it. The build itself proves this for a header that its own source file includes
first.

usage: headers_alone.py COMPILER SOURCE_DIR BUILD_DIR HEADER...

When $GPURUN_CHANGED_FILES names a file of paths, only the headers in it are compiled, as in
tools/check. Without it, and in a run of every test, all of them are compiled.
"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys


def compile_commands(build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        return json.load(file)


def proven_by_build(source, commands):
    """Headers that a compiled file includes before anything else."""
    found = set()
    for path in {os.path.join(entry["directory"], entry["file"]) for entry in commands}:
        if path.startswith(source + "/") and os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                first = re.search(r'^\s*#(.*)$', file.read(), re.MULTILINE)
            include = re.match(r'include "([^"]+)"', first.group(1)) if first else None
            if include:
                found.add(include.group(1))
    return found


def include_flags(commands):
    """The include directories of the build's own compile commands, system ones included."""
    flags = []
    for entry in commands:
        words = entry["command"].split()
        for index, word in enumerate(words):
            if word == "-isystem":
                flags.append(("-isystem", words[index + 1]))
            elif word.startswith("-I"):
                flags.append((word,))
    unique = dict.fromkeys(flags)
    return [word for flag in unique for word in flag]


def changed_of(headers):
    path = os.environ.get("GPURUN_CHANGED_FILES")
    if not path:
        return set(headers)
    with open(path, encoding="utf-8") as file:
        return set(file.read().splitlines())


def main(compiler, source, build, headers):
    commands = compile_commands(build)
    base = [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", *include_flags(commands)]
    proven = proven_by_build(source, commands)
    left = [header for header in headers if header not in proven and header in changed_of(headers)]

    def compile_one(header):
        run = subprocess.run(base + [os.path.join(source, header)], capture_output=True, text=True)
        return header, run

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = [(h, r.stderr) for h, r in pool.map(compile_one, left) if r.returncode != 0]
    for header, stderr in bad:
        print(f"{header} does not compile alone:\n{stderr[:2000]}")
    print(f"{len(headers) - len(bad)} of {len(headers)} headers compile alone, "
          f"{len(headers) - len(left)} of them first in a file of the build")
    return 1 if bad or not headers else 0


sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
