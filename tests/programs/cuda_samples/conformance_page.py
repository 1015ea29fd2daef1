"""Conformance page: docs/conformance.md, and the rows that it is made of, which outlast a run of
conformance.py."""
import collections
import json
import os


class Rows:
    """One row for each sample, kept in a file after each attempt."""

    def __init__(self, path):
        self.path, self.rows = path, {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.rows = json.load(file)

    def take(self, row):
        self.rows[row["sample"]] = row
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.rows, file, indent=1, sort_keys=True)
        os.replace(self.path + ".new", self.path)

    def row(self, sample):
        return self.rows.get(sample)

    def all(self):
        return [self.rows[name] for name in sorted(self.rows)]


def counted(words):
    return ", ".join(f"{word} ({count})" for word, count in sorted(collections.Counter(words).items()))


def page(rows, reasons):
    attempted = [row for row in rows if row["attempted"]]
    lines = ["# Conformance: NVIDIA's samples", "",
             "Made by `tools/conformance`. Debian's `nvidia-cuda-samples` 11.8, sources as they are, built by "
             "their own Makefiles with CUDA 13's nvcc for PTX alone, run in their own folder with the "
             "arguments of `make run`. *Natively*: on the emulated device. *Forwarded*: through `gpurun` to a "
             "server with the emulated device. Status and output must be the native ones except for times.", "",
             f"**{len(rows)} samples, {len(attempted)} attempted: "
             f"{sum(row['passes natively'] for row in attempted)} pass natively, "
             f"{sum(row['passes'] for row in attempted)} of these the same forwarded.**", "",
             f"Versions of gpurun (samples attempted): {counted(row['version'] for row in attempted)}. "
             f"Limit of a run in seconds (samples): {counted(row['seconds'] for row in attempted)}.", "",
             "| reason | samples | meaning |", "|---|---|---|"]
    count = collections.Counter(row["reason"] for row in rows if row["reason"])
    lines += [f"| {word} | {count[word]} | {reasons[word]} |" for word in reasons if count[word]]
    unexplained = [row["problem"] for row in rows if row["problem"]]
    if unexplained:
        lines += ["", f"**{len(unexplained)} not explained:**", ""] + [f"- {each}" for each in unexplained]
    lines += ["", "| sample | natively | forwarded | reason |", "|---|---|---|---|"]
    for row in rows:
        reason = ": ".join(word for word in (row["reason"], row["detail"]) if word)
        lines.append(f"| {row['sample']} | {row['native']} | {row['forwarded']} | {reason} |")
    return "\n".join(lines) + "\n"
