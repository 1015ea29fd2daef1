#!/usr/bin/env python3
"""Plants a flaw: writes copies of sources with one mistake, which a model must find.

plant.py list                 names, one a line: NAME SOURCE MODEL SCENARIO FINDS (tab-separated)
plant.py write NAME FOLDER    the files with the flaw, under FOLDER by their paths in the tree

Each text to replace must occur exactly once in its file. A change of such a line therefore fails here, and
its author decides what the mistake would be now. The sources of the product contain no trace of the flaws.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def flaws():
    return json.loads((HERE / "flaws.json").read_text())


def planted(text, edits, name):
    for old, new in edits:
        old, new = "\n".join(old), "\n".join(new)
        if text.count(old) != 1:
            sys.exit(f"flaw {name}: this stands {text.count(old)} times, and not once:\n{old}")
        text = text.replace(old, new)
    return text


def write(name, folder):
    flaw = flaws()[name]
    source = flaw["file"]
    target = pathlib.Path(folder) / source
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(planted((ROOT / source).read_text(), flaw["edits"], name))


def main():
    if sys.argv[1] == "list":
        for name, flaw in flaws().items():
            compiled = flaw.get("compiled", flaw["file"])
            print("\t".join((name, flaw["file"], compiled, flaw["model"], flaw["scenario"],
                             flaw["finds"])))
    else:
        write(sys.argv[2], sys.argv[3])


if __name__ == "__main__":
    main()
