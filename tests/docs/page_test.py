#!/usr/bin/env python3
"""Runs every block of commands of a page, in order, on two hosts (markdown_blocks.py, two_hosts.py).
A page with a command that fails, or that does not print what the page promises, fails. So does a page of
which nothing can be run.

usage: page_test.py --root ROOT --build BUILD PAGE
"""
import argparse
import os
import sys

import markdown_blocks
import two_hosts

SKIPPED = 77


def run_page(hosts, every):
    """Returns the number of failed blocks. A block after a failed one is also run."""
    failed = 0
    for block in every:
        if block.not_run:
            print(f"SKIPPED: {block.where()}: {block.not_run}")
            continue
        wrong = hosts.run(block)
        print(f"{'FAILED' if wrong else 'passed'}: {block.where()}", flush=True)
        if wrong:
            print(wrong, flush=True)
            failed += 1
    return failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--build", required=True, type=os.path.abspath)
    parser.add_argument("page")
    args = parser.parse_args()
    lacking = two_hosts.missing_tools()
    if lacking:
        print(f"SKIPPED: two hosts need {lacking}")
        return SKIPPED
    with open(os.path.join(args.root, args.page), encoding="utf-8") as file:
        every = markdown_blocks.commands(args.page, file.read())
    if all(block.not_run for block in every):
        print(f"FAILED: no block of {args.page} is run")
        return 1
    built = os.path.join(args.build, "programs")
    programs = {"program": f"{built}/reuse", "sample_mnist": f"{built}/sample_mnist",
                "sample_mnist_data": f"{built}/sample_mnist_data",
                "build/release/programs/sample_mnist": f"{built}/sample_mnist",
                "build/release/programs/sample_mnist_data": f"{built}/sample_mnist_data"}
    with two_hosts.TwoHosts(args.build, programs) as hosts:
        return 1 if run_page(hosts, every) else 0


if __name__ == "__main__":
    sys.exit(main())
