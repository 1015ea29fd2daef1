"""Rows of a run: the medians of its rounds beside the best of its baselines, each with its bar."""
import json
import math
import os
import statistics

from bars import best

SHOWN = {"ns": (1e-3, "us"), "ms": (1, "ms"), "GB/s": (1, "GB/s"), "1/s": (1, "/s"), "MiB": (1, "MiB"),
         "": (1, ""), "%": (1, "%"), "Gbit/s": (1, "Gbit/s")}

COLUMNS = ("native", "plain C++", "alone", "gpurun", "gpurun across", "other")


def median_of(rounds):
    """For each row, the medians over the rounds of its median and of its 99th percentile."""
    return {name: {"unit": row["unit"],
                   **{key: statistics.median(one[name][key] for one in rounds) for key in ("p50", "p99")}}
            for name, row in rounds[0].items()}


def best_of(measured):
    """For each baseline the best, which is the machine's limit. Its 99th percentile is that of the
    same measurement."""
    found = {}
    for rows in measured:
        for name, row in rows.items():
            if name not in found or best(row["unit"], (row["p50"], found[name]["p50"])) == row["p50"]:
                found[name] = row
    return found


class Row:
    """`columns`: {"native" | "gpurun" | "gpurun across" | ...: {"p50": .., "p99": ..}}."""

    def __init__(self, name, unit, columns, raw=None, lanes=(1,), others=None):
        self.name, self.unit, self.columns = name, unit, columns
        self.raw, self.lanes = raw or {}, lanes  # Connection numbers of raw streams.
        self.others = others if others is not None else {}  # Rows of the same run, by name.
        self.others[name] = self
        self.text, self.met, self.note = "", None, ""
        self.nominal = {}

    def judge(self, bar):
        if bar is not None:
            self.text, self.met = bar.judge(self)
            self.note = bar.note
            if bar.nominal is not None:
                text, met = bar.nominal(self)
                self.nominal = {"nominal_bar": text, "nominal_met": met}
        return self

    def value(self, key):
        return best(self.unit if key == "p50" else "ns",
                    (column[key] for title, column in self.columns.items() if title.startswith("gpurun")))

    def as_json(self):
        return {"row": self.name, "unit": self.unit, "columns": self.columns, "bar": self.text,
                "met": self.met, **self.nominal, **({"note": self.note} if self.note else {})}


def one(value):
    return {"p50": value, "p99": value}


def rows_of(columns, raw, bars, lanes=lambda name: (1,)):
    """Rows from the bench client's output, by column. `lanes`: the connection numbers of a row, by
    its name."""
    names = list(columns["gpurun"])
    others = {}
    rows = [Row(name, columns["gpurun"][name]["unit"],
                {title: {key: rows[name][key] for key in ("p50", "p99")} for title, rows in columns.items()},
                raw, lanes(name), others) for name in names]
    return [row.judge(bars.get(row.name)) for row in rows]


def shown(unit, column):
    if column is None:
        return "-"
    factor, name = SHOWN[unit]
    number, high = factor * column["p50"], factor * column["p99"]
    digits = 0 if number >= 1000 or unit == "" and number == math.floor(number) else 2
    text = f"{number:,.{digits}f} {name}".strip()
    if unit == "ns" and high != number:
        text += f" ({high:,.1f})"
    return text


class Results:
    """The results of an earlier run, as its file holds them."""

    def __init__(self, path):
        self.name = os.path.splitext(os.path.basename(path))[0]
        with open(path, encoding="utf-8") as file:
            self.rows = {(name, row["row"]): row for name, group in json.load(file)["groups"].items()
                         for row in group["rows"]}

    def unmet(self):
        return [name for name, row in self.rows.items() if row["met"] is False]

    def told(self, group, row, placement, units):
        """Texts for a list: the values for the profiled placement, each divided by `units`."""
        if (group, row) not in self.rows:
            return []
        found = self.rows[group, row]
        column = found["columns"].get(f"gpurun {placement}", found["columns"]["gpurun"])
        return [f"{shown(found['unit'], {key: value / units for key, value in column.items()})} in {self.name}"]


def table(results):
    """The lines of a table of all groups of a results file."""
    lines, unmet, judged, nominal = [results["stand"]], 0, 0, []
    if results.get("device", "null") != "null":
        lines.append(f"device: {results['device']} (the bars are made for the null device)")
    for name, group in results["groups"].items():
        titles = sorted({title for row in group["rows"] for title in row["columns"]}, key=COLUMNS.index)
        lines += ["", f"{name}: {group['about']} ({group['stand']}; rounds: {group['rounds']})"]
        for title, row in group["raw"].items():
            lines.append(f"  {title:<48}{shown(row['unit'], row):>20}")
        lines.append(f"  {'':<48}" + "".join(f"{title:>20}" for title in titles))
        for row in group["rows"]:
            line = f"  {row['row']:<48}" + "".join(
                f"{shown(row['unit'], row['columns'].get(title)):>20}" for title in titles)
            if row["met"] is not None:
                judged += 1
                unmet += not row["met"]
                line += f"   {'met' if row['met'] else 'NOT MET'}: {row['bar']}"
                if "nominal_met" in row:
                    nominal.append(row["nominal_met"])
                    line += f" (nominal {row['nominal_bar']}: {'met' if row['nominal_met'] else 'not'})"
                line += f" ({row['note']})" if "note" in row else ""
            lines.append(line.rstrip())
    lines += ["", f"{judged - unmet} of {judged} bars met, {unmet} not"]
    if nominal:
        lines.append(f"with round trips of a link's nominal delay {sum(nominal)} of {len(nominal)} would be met")
    return lines
