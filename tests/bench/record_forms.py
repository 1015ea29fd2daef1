"""Cost of a launch's record at either end, in its fixed layout and as a message of Cap'n Proto
(docs/adr/0007). Nothing is judged: both would have to fit into the budget of a posted call."""
import os

from machine import run_json
from report import Row
import world

RECORD_FORMS = os.path.join(world.ARGS.build, "bench/record_forms")
PASSES = 15


def measure(machine):
    measured = run_json([RECORD_FORMS, str(3 if machine.quick else PASSES)], dict(os.environ))
    return [Row(name, row["unit"], {"gpurun": {key: row[key] for key in ("p50", "p99")}})
            for name, row in measured.items()], {}
