"""Writes the refused entry points of driver_abi/nvml.toml as C++ (usage: TABLE OUTPUT)."""

import ast
import re
import sys


def names(text: str, key: str) -> list[str]:
    """The list of strings `key` of the table. Its TOML is also Python, comments included."""
    found = re.search(rf"^{key} = (\[.*?^\])", text, re.MULTILINE | re.DOTALL)
    if not found:
        raise SystemExit(f"nvml.toml: no list {key}")
    return ast.literal_eval(found.group(1))


def main() -> None:
    table, output = sys.argv[1:]
    with open(table, encoding="utf-8") as file:
        text = file.read()
    served, refused = names(text, "served"), names(text, "refused")
    twice = {n for n in served + refused if (served + refused).count(n) > 1}
    if twice:
        raise SystemExit(f"nvml.toml: twice: {', '.join(sorted(twice))}")
    lines = [
        "// Generated from driver_abi/nvml.toml; do not edit.",
        '#include "driver_abi/nvml_front.h"',
        "using namespace gpurun::driver_abi;",
        "// The arguments stay untouched: the caller owns them on every host ABI of CUDA.",
        "#define REFUSED(name) \\",
        "  GPURUN_NVML_EXPORT int name() { \\",
        "    const int state = nvml::initialized(); \\",
        "    return state != 0 ? state : static_cast<int>(kNvmlNotSupported); \\",
        "  }",
    ]
    lines += [f"REFUSED({name})" for name in refused]
    with open(output, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
