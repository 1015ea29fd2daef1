"""Known tests: a build's tests, and the cost of each (tests/costs.txt)."""
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COSTS = os.path.join(ROOT, "tests/costs.txt")


def tests_of(build):
    """Returns name -> its ctest properties."""
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                            capture_output=True, text=True, timeout=60).stdout
    return {test["name"]: {each["name"]: each["value"] for each in test.get("properties", [])}
            for test in json.loads(listed)["tests"]}


def costs(path=COSTS):
    """Returns name -> (seconds, seconds of processor time, or None without a measurement)."""
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                words = line.split()
                if len(words) in (2, 3) and not line.startswith("#"):
                    found[words[0]] = (float(words[1]), float(words[2]) if len(words) == 3 else None)
    return found
