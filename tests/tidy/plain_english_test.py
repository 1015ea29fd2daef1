#!/usr/bin/env python3
"""The prose check must notice each kind of violation, in each kind of file, and nothing else."""
import sys

import plain_english

LONG = "The worker " + "sends the reply and " * 11 + "ends."
CASES = [
    ("a.h", "// The thread who posts also sends.\n", "who"),
    ("a.cc", "int x;  // Whose turn it is.\n", "Whose"),
    ("a.cc", "f();\n// Wakes\n// whoever waits.\n", "whoever"),
    ("a.cu", "// As above, but for null.\n", "but for"),
    ("a.cc", "// Null: there is none, and what is none stays.\n", "is none"),
    ("a.h", "// Likewise for an event.\n", "Likewise"),
    ("a.h", f"// {LONG}\n", "sentence of"),
    ("a.md", f"# Title\n\n{LONG}\n", "sentence of"),
    ("a.md", f"- One.\n- {LONG}\n", "sentence of"),
    ("a.md", "| column |\n|---|\n| whom it serves |\n", "whom"),
    ("a.py", '"""Tells who waits."""\n', "who"),
    ("a.py", "x = 1\n# Tells who waits.\n", "who"),
    ("CMakeLists.txt", "# Tells who waits.\n", "who"),
    ("run", "#!/bin/sh\n# Tells who waits.\n", "who"),
    ("a.cc", 'f("tells the client who waits");\n', "who"),
    ("a.cc", 'f("the file is "\n  // A comment between them.\n  "none of ours");\n', "is none"),
    ("a.h", 'f(R"x(the client "a" or whoever waits)x");\n', "whoever"),
    ("a.cc", "f('\"', \"all the names but for \\\"a\\\"\");\n", "but for"),
]
GOOD = [
    ("a.cc", 'const char* url = "http://who.example.org";\n'),
    ("a.cc", "// The command `who` and the word \"whose\" are quoted.\n"),
    ("a.cc", "// One.\n\n// Two.\n" + "// The reply ends here.\n" * 30),
    ("a.md", "```\nwho | likewise\n```\n"),
    ("a.md", "    who\n"),
    ("a.py", 'names = ("who", "whose")\n'),
    ("a.cc", 'f("who", "whose", "a command such as \\"who\\"");\n'),
    ("a.cc", f'f("{LONG}");\n'),
    ("tests/a.cc", 'f("tells the client who waits");\n'),
    ("a.json", '{"who": "likewise"}\n'),
]


def main():
    failures = 0
    for path, text, expected in CASES:
        found = list(plain_english.check_text(path, text))
        if len(found) != 1 or expected not in found[0]:
            print(f"not noticed: {path}: {expected!r}; found {found}")
            failures += 1
    for path, text in GOOD:
        found = list(plain_english.check_text(path, text))
        if found:
            print(f"noticed wrongly: {found}")
            failures += 1
    if plain_english.check_subject("a" * 72) or not plain_english.check_subject("a" * 73):
        print("a long subject of a commit is not noticed, or a short one is")
        failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
