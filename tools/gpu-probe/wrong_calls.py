#!/usr/bin/env python3
"""Makes C++ of the table of wrong calls. usage: wrong_calls.py TABLE OUTPUT

Each row of the table becomes one member function of WrongStage and one element of wrong_calls().
wrong_calls.txt explains its columns.
"""
import re
import sys

LEVELS = {"nothing": "kNothing", "init": "kInit", "context": "kContext", "kernels": "kWork",
          "lost": "kLost"}
STRUCTURES = ("copy_2d", "copy_3d", "properties", "pool_properties", "access", "config", "kernel_node",
              "memset_node")
STRUCTURE = re.compile(r"\b(%s)\{([^{}]*)\}" % "|".join(STRUCTURES))
# Functions of wrong_call.h that change nothing. A row that calls others needs preparation.
VALUES = {"number", "options", "five", "short_extra"}
SOURCE = re.compile(r"list|code|says: \S.*|like \w+(: .*)?|measured on .+|open")


class Row:
    def __init__(self, columns):
        self.function, self.how, level, arguments, self.expected, self.source = columns[:6]
        self.lacking = columns[6] if len(columns) > 6 else ""
        self.level = LEVELS[level]
        self.before, _, self.arguments = (part.strip() for part in arguments.rpartition("=>"))
        called = {name for name in re.findall(r"\b([a-z]\w*)\(", arguments)}
        self.prepared = bool(self.before or called - VALUES)


def read(path):
    seen = set()
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            columns = [column.strip() for column in re.split(r"\s\|(?=\s)", line)]
            try:
                row = Row(columns)
            except (ValueError, KeyError) as error:
                sys.exit(f"{path}:{number}: no row of 6 or 7 columns: {error}")
            if (row.function, row.how) in seen:
                sys.exit(f"{path}:{number}: {row.function}, {row.how}: twice")
            if not SOURCE.fullmatch(row.source) or (row.expected == "?") != (row.source == "open"):
                sys.exit(f"{path}:{number}: no source: {row.source}")
            seen.add((row.function, row.how))
            yield row


def structure(match):
    """copy_2d{.a = 1, .b = 2}: the right structure, except these members."""
    name, members = match.groups()
    changes = [change.strip() for change in re.split(r",\s*(?=\.)", members) if change.strip()]
    body = " ".join(f"it{change};" for change in changes)
    return f"{name}([this]([[maybe_unused]] auto& it) {{ static_cast<void>(this); {body} }})"


def expression(text):
    return STRUCTURE.sub(structure, text)


def result(name):
    if name == "?":
        return "kOpen"
    return "CUDA_SUCCESS" if name == "SUCCESS" else f"CUDA_ERROR_{name}"


def text(value):
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def generate(rows):
    yield '// Made by wrong_calls.py of wrong_calls.txt.\n#include "wrong_call.h"\n\n'
    yield "namespace gpurun::probe {\n\n"
    for index, row in enumerate(rows):
        before = f"{expression(row.before)}; " if row.before else ""
        yield (f"template <>\nCUresult WrongStage::make<{index}>() {{\n"
               f"  {before}return CU(driver, {row.function})({expression(row.arguments)});\n}}\n")
    yield "\nstatic constexpr WrongCall kCalls[] = {\n"
    for index, row in enumerate(rows):
        yield (f"    {{{text(row.function)}, {text(row.how)}, {result(row.expected)}, "
               f"{text(row.source)}, Level::{row.level}, {'true' if row.prepared else 'false'}, "
               f"{text(row.lacking)}, &WrongStage::make<{index}>}},\n")
    yield "};\n\nstd::span<const WrongCall> wrong_calls() { return kCalls; }\n\n"
    yield "}  // namespace gpurun::probe\n"


def main(table, output):
    rows = list(read(table))
    with open(output, "w", encoding="utf-8") as file:
        file.writelines(generate(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
