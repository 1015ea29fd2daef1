#!/usr/bin/env python3
"""Built graphs: a program that builds graphs by cuGraphAddNode waits for no reply. A node becomes the
call of its type, which is posted. The calls on user objects are posted, too.

Counts the entries and the records of those functions in --stats. Measures no time.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402

# The program calls these only by cuGraphAddNode, or posts them itself.
POSTED = ("cuGraphAddKernelNode_v2", "cuGraphAddMemcpyNode", "cuGraphAddMemsetNode", "cuGraphAddEmptyNode",
          "cuGraphAddEventRecordNode", "cuGraphAddEventWaitNode", "cuUserObjectCreate", "cuUserObjectRetain",
          "cuUserObjectRelease", "cuGraphRetainUserObject")
# Only the server's driver knows where the memory of a graph ends, which one of the nodes fills.
ASKED = {"cuGraphAddMemsetNode": 1}
# A node with edge data gets its edges by a call of its own. The program adds two such nodes, and
# one edge by itself.
EDGES_MAX = 3
ENTRIES_MIN = 20


def main():
    with world.Gpurund() as server:
        done = world.measured(server, [sys.argv[2], sys.argv[1]])
        if done.status != 0 or len(done.statistics) != 1:
            sys.exit(f"WRONG: status {done.status}\n{done.stdout}{done.stderr}{server.log()}")
    counted = {function["name"]: function for function in done.statistics[0]["functions"]}
    wrong = []
    entries = sum(counted.get(name, {}).get("entries", 0) for name in ("cuGraphAddNode", "cuGraphAddNode_v2"))
    print(f"cuGraphAddNode: {entries} times")
    if entries < ENTRIES_MIN:
        wrong.append(f"cuGraphAddNode is called {entries} times only, which shows nothing")
    for name in POSTED:
        if name not in counted:
            wrong.append(f"{name} is not called")
            continue
        calls, fences = (counted[name][key] for key in ("calls", "fences"))
        print(f"{name}: {calls} calls, {fences} round trips")
        if calls == 0 or fences != ASKED.get(name, 0):
            wrong.append(f"{name} has {calls} calls and {fences} round trips")
    edges = counted.get("cuGraphAddDependencies_v2", {}).get("calls", 0)
    if edges > EDGES_MAX:
        wrong.append(f"edges have {edges} calls of their own")
    if wrong:
        sys.exit("WRONG: " + "; ".join(wrong))


main()
