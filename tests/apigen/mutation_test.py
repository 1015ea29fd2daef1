#!/usr/bin/env python3
"""Mutation test of the checks on the table. It injects faults into random served rows, each in its
own copy of the table: two parameters swap places, or a pointer's direction flips. One of the checks
that guard the table must report each fault by name:

    check        the generator refuses the row
    names        cuda.h's prototypes have other names there (manual_test.py)
    directions   the manual or a reader disagrees (manual_test.py)
    types        the row's prototype differs from cuda.h's (as cuda_h_test compares them)
    every_row    the recording device receives another call than cuda.h's caller makes:
                 tests/parity, with its client and its worker relinked with the faulty
                 table. The device stays as it is, as a real driver would.

All except the last judge every fault. every_row judges faults of generated rows, and must find each
output that became an input and the reverse. The seed is printed. GPURUN_MUTATION_SEED repeats a
run, and GPURUN_MUTATIONS sets the number of faults.

usage: mutation_test.py BUILD_FOLDER
"""

import json
import os
import random
import shlex
import subprocess
import sys
import tempfile

import manual_test  # Sets the path to the generator's modules.
import check  # noqa: E402
import emit_header  # noqa: E402
import emit_rows  # noqa: E402
import table  # noqa: E402
import toml_file  # noqa: E402
from cuda_types import CudaTypes, TypeError_  # noqa: E402

TABLES = manual_test.TABLES
ROOT = manual_test.ROOT
SKIPPED = 77
HEALTHY = "cuEventElapsedTime_v2"  # Stays as it is, and must pass.
TYPES = CudaTypes(os.path.join(TABLES, "cuda_types.toml"))
LOCK = check.read_lock(os.path.join(TABLES, "opcodes.lock"))
MATCHES_MAIN = """
#include <cstdio>
#include "tests/apigen/facts.h"
int main() {
  for (const auto& [name, value] : facts_of_cuda_h()) {
    if (value != 1) std::printf("%s\\n", name.c_str());
  }
}
"""


class Mutation:
    def __init__(self, symbol, what, parameters, travels):
        self.symbol, self.what, self.parameters = symbol, what, parameters
        self.travels = travels  # The data that reaches the device differs.
        self.noticed = []

    def __str__(self):
        return "%s: %s" % (self.symbol, self.what)


def with_direction(text, direction):
    declaration, _, notes = (part.strip() for part in text.partition("|"))
    kept = [n for n in notes.split() if n not in table.DIRECTIONS]
    return "%s | %s" % (declaration, " ".join([direction] + kept))


def answered_by_hand():
    """Rows that the null device implements. It may refuse calls that the others accept."""
    path = os.path.join(ROOT, "tests/drivers/null/implemented.list")
    with open(path, encoding="utf-8") as stream:
        return frozenset(line.strip() for line in stream
                         if line.strip() and not line.startswith("#"))


BY_HAND = answered_by_hand()


def swaps(row, texts):
    for i in range(len(texts)):
        for j in range(i + 1, len(texts)):
            changed = list(texts)
            changed[i], changed[j] = changed[j], changed[i]
            a, b = row.parameters[i], row.parameters[j]
            yield Mutation(row.symbol, "%s and %s swapped" % (a.name, b.name), changed, False)


def flips(row, texts):
    for i, p in enumerate(row.parameters):
        if not p.pointers or p.address:
            continue
        for direction in table.DIRECTIONS:
            if direction == p.direction:
                continue
            changed = list(texts)
            changed[i] = with_direction(texts[i], direction)
            # Nothing reveals that an output also travels to the device.
            travels = row.symbol not in BY_HAND and "inout" not in (direction, p.direction)
            yield Mutation(row.symbol, "%s is %s" % (p.name, direction), changed, travels)


def choose(rows, source, number, seed):
    chosen = {}
    chooser = random.Random(seed)
    served = [r for r in rows if r.target is r and r.completion != "refused" and
              r.symbol != HEALTHY]
    while len(chosen) < number:
        row = chooser.choice(served)
        texts = source[row.symbol]["parameters"]
        possible = list(chooser.choice((swaps, flips))(row, texts))
        if possible and row.symbol not in chosen:
            chosen[row.symbol] = chooser.choice(possible)
    return list(chosen.values())


def load(source):
    rows = {symbol: table.Row(symbol, d) for symbol, d in source.items()}
    for row in rows.values():
        if not row.alias:
            row.resolve(TYPES)
    for row in rows.values():
        if row.alias:
            row.resolve_alias(rows)
    return list(rows.values())


def planted(source, mutations):
    spoiled = dict(source)
    for mutation in mutations:
        spoiled[mutation.symbol] = dict(source[mutation.symbol], parameters=mutation.parameters)
    return spoiled


# Faults of one table, distinguished by the symbol at their start.
def notice(mutations, gate, faults):
    named = {fault.split(":")[0].split(".")[0] for fault in faults}
    for mutation in mutations:
        if mutation.symbol in named:
            mutation.noticed.append(gate)


def refused_by_check(source, mutation):
    try:
        return bool(check.check(TYPES, load(planted(source, [mutation])), LOCK))
    except (table.RowError, TypeError_):
        return True


def other_prototypes(rows, mutations, folder, include, compiler):
    """Symbols of the mutated rows with a prototype that differs from cuda.h's."""
    os.makedirs(os.path.join(folder, "tests/apigen"))
    wanted = {m.symbol for m in mutations}
    with open(os.path.join(folder, "tests/apigen/facts.inc"), "w", encoding="utf-8") as stream:
        for row in rows:
            if row.symbol in wanted:
                stream.write('FACT("%s", (std::is_same_v<decltype(::%s), CUresult(%s)>))\n' % (
                    row.symbol, row.symbol, ", ".join(p.type for p in row.parameters)))
    main = os.path.join(folder, "main.cc")
    with open(main, "w", encoding="utf-8") as stream:
        stream.write(MATCHES_MAIN)
    program = os.path.join(folder, "prototypes")
    subprocess.run([compiler, "-std=c++20", "-O0", "-I", folder, "-I", ROOT, "-I", include,
                    os.path.join(ROOT, "tests/apigen/cuda_h_facts.cc"), main, "-o", program],
                   check=True, timeout=120)
    return subprocess.run([program], check=True, capture_output=True, text=True,
                          timeout=20).stdout.split()


class Relinker:
    """Relinks tests/parity with another table."""

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
            self.compiles = json.load(stream)

    def compile(self, part, source, output):
        command, = (c["command"] for c in self.compiles if part in c["command"])
        words, changed = shlex.split(command), []
        while words:
            word = words.pop(0)
            if word in ("-o", "-c"):
                words.pop(0)
            else:
                changed.append(word)
        compiler = next(i for i, w in enumerate(changed) if w.startswith("-"))
        changed[compiler:compiler] = ["-I", self.folder]
        self.run(changed + ["-c", source, "-o", output])

    def link(self, target, output, replaced):
        lines = subprocess.run(["ninja", "-C", self.build, "-t", "commands", target], check=True,
                               capture_output=True, text=True, timeout=60).stdout.splitlines()
        line = [x for x in lines if " -o %s " % target in x][-1]
        words = [w for w in shlex.split(line.replace(": && ", "").replace(" && :", ""))]
        words[words.index("-o") + 1] = output
        place = next(i for i, w in enumerate(words) if w.endswith(".o"))
        for name, mine in replaced.items():
            words = [w for w in words if not w.endswith(name)]
            words.insert(place, mine)
        self.run(words)

    def run(self, words):
        subprocess.run(words, cwd=self.build, check=True, timeout=300)


def noticed_by_every_row(rows, mutations, folder, build):
    def write(name, text):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        return path

    write("driver_abi/cuda_abi.h", emit_header.render(TYPES, rows))
    write("driver_abi/rows.inc", emit_rows.render(TYPES, rows))
    relinker = Relinker(build, folder)
    rows_object, program = os.path.join(folder, "rows.o"), os.path.join(folder, "every_row_test")
    relinker.compile("/gpurun_driver_abi.dir/rows.cc", os.path.join(ROOT, "driver_abi/rows.cc"),
                     rows_object)
    relinker.link("tests/every_row_test", program, {"/rows.cc.o": rows_object})
    symbols = []
    for symbol in [HEALTHY] + [m.symbol for m in mutations]:
        # A faulty row may end the program before it removes its file of recorded calls.
        environment = dict(os.environ, GPURUN_EVERY_ROW=symbol, TMPDIR=folder)
        run = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60)
        if run.returncode != 0:
            symbols.append(symbol)
    return symbols


def judge(source, mutations, build, folder):
    include = os.environ["GPURUN_CUDA_INCLUDE"]
    compiler = os.environ.get("GPURUN_COMPILER", "c++")
    possible = []
    for mutation in mutations:
        if refused_by_check(source, mutation):
            mutation.noticed.append("check")
        else:
            possible.append(mutation)
    rows = load(planted(source, possible))
    own = [r for r in rows if r.target is r]
    notice(possible, "names",
           manual_test.name_faults(manual_test.of_toolkit(own),
                                   manual_test.read_prototypes(include, compiler)))
    notice(possible, "directions",
           manual_test.direction_faults(manual_test.of_toolkit(rows),
                                        manual_test.read_manual(include)))
    notice(possible, "types", other_prototypes(rows, possible, os.path.join(folder, "types"),
                                               include, compiler))
    generated = {r.symbol for r in own if r.implementation == "generated"}
    for_every_row = [m for m in possible if m.symbol in generated]
    rows = load(planted(source, for_every_row))
    symbols = noticed_by_every_row(rows, for_every_row, os.path.join(folder, "every_row"), build)
    notice(for_every_row, "every_row", symbols)
    missed = [m for m in for_every_row if m.travels and m.symbol not in symbols]
    return missed, HEALTHY in symbols, len(for_every_row)


def main():
    if os.environ.get("GPURUN_CUDA_H_MATCHES") != "TRUE":
        print("skipped: no cuda.h of CUDA 13 on this machine")
        return SKIPPED
    seed = os.environ.get("GPURUN_MUTATION_SEED") or str(random.SystemRandom().randrange(10**9))
    number = int(os.environ.get("GPURUN_MUTATIONS", "40"))
    print("GPURUN_MUTATION_SEED=%s" % seed, flush=True)
    source = toml_file.load(os.path.join(TABLES, "cuda_driver.toml"))
    # This machine's cuda.h cannot judge names that it lacks.
    mutations = choose(manual_test.of_toolkit(load(source)), source, number, seed)
    with tempfile.TemporaryDirectory(prefix="gpurun-mutations-") as folder:
        missed, healthy_fails, tried = judge(source, mutations, os.path.abspath(sys.argv[1]), folder)
    for mutation in mutations:
        print("%-70s %s" % (mutation, ", ".join(mutation.noticed) or "UNNOTICED"))
    unnoticed = [m for m in mutations if not m.noticed]
    print("%d of %d faults noticed; every_row noticed %d of the %d that it was given" % (
        number - len(unnoticed), number, sum("every_row" in m.noticed for m in mutations), tried))
    for mutation in missed:
        print("every_row should have noticed: %s" % mutation)
    if healthy_fails:
        print("every_row fails on a row without a fault")
    return 1 if unnoticed or missed or healthy_fails else 0


if __name__ == "__main__":
    sys.exit(main())
