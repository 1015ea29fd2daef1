"""Finds circles of includes: headers that include each other, and circles of units.

A unit is a header with the source of its name. A source may need a header that includes its own, as
a class needs its private header. So small circles of units are allowed, and large ones are not: they
have no part that can be read, tested or moved alone.
"""
import re

FOLDERS = ("base/", "client/", "driver_abi/", "emulated/", "protocol/", "server/", "tools/", "transport/")
SOURCE = re.compile(r"\.(h|cc)$")
INCLUDES = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
UNITS_MAX = 3


def circles_in(graph):
    """The largest sets of nodes that reach each other, each sorted. (Tarjan's algorithm.)"""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            at = stack.index(node)
            if len(stack) - at > 1 or node in graph.get(node, ()):
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in graph:
        if node not in number:
            visit(node)
    return found


def check(texts):
    """`texts`: the sources of the production folders, by path."""
    includes = {path: [h for h in INCLUDES.findall(text) if h in texts] for path, text in texts.items()}
    headers = {path: included for path, included in includes.items() if path.endswith(".h")}
    for circle in circles_in(headers):
        yield f"{circle[0]}: a circle of headers: {', '.join(circle)}"
    units = {}
    for path, included in includes.items():
        unit = SOURCE.sub("", path)
        units.setdefault(unit, set()).update({SOURCE.sub("", h) for h in included} - {unit})
    for circle in circles_in(units):
        if len(circle) > UNITS_MAX:
            yield f"{circle[0]}: a circle of {len(circle)} files with their headers: {', '.join(circle)}"
