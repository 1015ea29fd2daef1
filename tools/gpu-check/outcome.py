"""Report: the results of each section as rows for programs (JSON), a table to read, and a log of failures."""
import json
import os
import time


class Report:
    def __init__(self, folder):
        self.folder, self.sections, self.wrong = folder, {}, 0
        self.lines = []
        self.log = open(os.path.join(folder, "gpu-check.log"), "w", encoding="utf-8", errors="replace")

    def begin(self, name, about):
        self.section = self.sections[name] = {"about": about, "rows": []}
        self.began = time.monotonic()
        self.say(f"\n{name}: {about}")

    def end(self):
        self.section["seconds"] = round(time.monotonic() - self.began, 1)
        self.say(f"  ({self.section['seconds']} s)")
        self.write()  # Keeps the results if the machine is taken away later.

    def left_out(self, name, about):
        self.sections[name] = {"about": about, "rows": [], "left_out": True}
        self.say(f"\n{name}: {about}: left out, no time is left")

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)

    def fact(self, name, value):
        self.section["rows"].append({"row": name, "value": value})
        self.say(f"  {name:<44} {value}")

    def row(self, name, right, text, output="", **numbers):
        """`output` goes to the log if the row is not right."""
        self.section["rows"].append({"row": name, "right": right, "text": text, **numbers})
        self.wrong += not right
        self.say(f"  {name:<44} {'' if right else 'WRONG: '}{text}")
        if not right and output:
            self.log.write(f"==== {name}: {text}\n{output[-60000:]}\n")
            self.log.flush()

    def write(self):
        with open(os.path.join(self.folder, "gpu-check.json"), "w", encoding="utf-8") as file:
            json.dump({"format": 1, "sections": self.sections}, file, indent=1)
            file.write("\n")
        with open(os.path.join(self.folder, "gpu-check.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join([*self.lines, "", f"{self.wrong} wrong"]).strip() + "\n")
