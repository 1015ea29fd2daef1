#!/usr/bin/env python3
"""Compiles each header alone (syntax only): a header that needs another's includes breaks whoever
includes it first.

usage: headers_alone.py COMPILER SOURCE_DIR BUILD_DIR HEADER...
"""
import concurrent.futures
import os
import subprocess
import sys


def include_flags(build):
    """The include directories of the build's own compile commands, system ones included."""
    import json

    flags = []
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        for entry in json.load(file):
            words = entry["command"].split()
            for index, word in enumerate(words):
                if word == "-isystem":
                    flags.append(("-isystem", words[index + 1]))
                elif word.startswith("-I"):
                    flags.append((word,))
    unique = dict.fromkeys(flags)
    return [word for flag in unique for word in flag]


def main(compiler, source, build, headers):
    base = [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", *include_flags(build)]

    def compile_one(header):
        run = subprocess.run(base + [os.path.join(source, header)], capture_output=True, text=True)
        return header, run

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = [(h, r.stderr) for h, r in pool.map(compile_one, headers) if r.returncode != 0]
    for header, stderr in bad:
        print(f"{header} does not compile alone:\n{stderr[:2000]}")
    print(f"{len(headers) - len(bad)} of {len(headers)} headers compile alone")
    return 1 if bad or not headers else 0


sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
