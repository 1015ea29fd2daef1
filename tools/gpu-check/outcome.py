"""What came of each section: rows for programs (JSON), a table to read, a log of what went wrong."""
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
        self.write()  # What a machine that is taken away had until then.

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
        """`output`: what was said, for the log if it is not right."""
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
