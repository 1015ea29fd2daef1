#!/usr/bin/env python3
"""Writes a table of perftest's numbers and of gpurun's, measured in one guest of the laboratory.

usage: references.py BUILD [PAGE]

Prints the table, and writes it to PAGE. Ends with 77 and a reason where the laboratory cannot run.
"""
import json
import os
import shlex
import sys

import lab

sys.path.insert(0, os.path.join(lab.HERE, "../programs"))
import both_ways  # noqa: E402

HEAD = """{stand}
One guest of QEMU without KVM, its two RDMA devices (tests/rdma-lab), one processor. Times are medians. Rates are
means, perftest's of the data and gpurun's of all bytes on the link. The figures are for ratios between them, and say
nothing of hardware. The machine's load was {begin:.1f} at the begin and {end:.1f} at the end. A load of more than 1
comes from other programs. It disturbs above all those programs of perftest that poll.
"""


def table(rows):
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:{width}} {value:12,.1f} {unit}" for name, value, unit in rows]


def main(build, page=None):
    lacks = lab.missing(build)
    if lacks:
        print(f"skipped: {lacks}")
        return lab.SKIPPED
    words = [sys.executable, "-B", os.path.join(lab.HERE, "guest/references.py"),
             "--build", os.path.abspath(build)]
    begin = os.getloadavg()[0]
    done = lab.run(shlex.join(words), build=build, seconds=900)
    if done.status != 0:
        sys.exit(done.output)
    rows = [json.loads(line) for line in done.output.splitlines() if line.startswith("[")]
    head = HEAD.format(stand=both_ways.stand(), begin=begin, end=os.getloadavg()[0])
    text = head + "\n" + "\n".join(table(rows)) + "\n"
    print(text, end="")
    if page:
        with open(page, "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
