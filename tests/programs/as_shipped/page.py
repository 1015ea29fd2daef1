"""Page of the programs: their rows, which outlast a run of programs.py, and the table that
docs/compatibility.md shows between two marks."""
import json
import os

BEGIN, END = "<!-- begin of tools/programs -->", "<!-- end of tools/programs -->"


class Rows:
    """One row for each program, kept in a file after each run. `published`: a file with the rows of
    programs that have not run in this folder."""

    def __init__(self, path, published=None):
        self.path, self.rows = path, {}
        self.read(published)
        self.read(path)

    def read(self, path):
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as stream:
                self.rows.update(json.load(stream))

    def take(self, name, row):
        self.read(self.path)  # Another run may have added its rows meanwhile.
        self.rows[name] = row
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as stream:
            json.dump(self.rows, stream, indent=1, sort_keys=True)
        os.replace(self.path + ".new", self.path)

    def all(self):
        return self.rows


def verdict_of(case, way):
    each = case.get(way)
    if each is None:
        return "-"
    if each["seconds"] is None:
        return each["verdict"]
    processors = each.get("processor_seconds")
    return f"{each['verdict']}, {each['seconds']:.1f} s" + (f" ({processors:.1f})" if processors is not None else "")


def cost_of(row):
    """Processor's seconds and load of each run."""
    return "; ".join(f"{way} {seconds:.0f} processor's seconds at load {row['load'][way]}"
                     for way, seconds in row.get("processor_seconds", {}).items())


def lines_of(name, row):
    """The row as text, a line for each case."""
    yield f"{name} ({' '.join(row['packages'])})"
    for case, ways in row["cases"].items():
        yield f"  {case:28} {verdict_of(ways, 'native'):26} {verdict_of(ways, 'forwarded')}".rstrip()
    for way, text in row.get("failures", {}).items():
        yield f"  {way}: {text}"
    if cost_of(row):
        yield f"  {'cold' if row['cold'] else 'with caches'}: {cost_of(row)}"
    if row.get("trips"):
        yield f"  round trips: {trips_of(row)}"


def few_trips(trips):
    """At most two trips for each result that the program reads, and 100 more."""
    return trips["all"] <= 2 * trips["read"] + 100


def trips_of(row):
    """Round trips, copies from the device, and the functions with most trips where there are many."""
    trips = row.get("trips")
    if not trips:
        return "-"
    text = f"{trips['all']}, {trips['read']} results"
    if few_trips(trips):
        return text
    return text + ": " + ", ".join(f"{name} {count}" for name, count in trips["most"])


def counted(row, way):
    verdicts = [case[way] for case in row["cases"].values() if way in case]
    if not verdicts:
        return "-"
    return f"{sum(each['verdict'] == 'right' for each in verdicts)} of {len(verdicts)}"


def seconds(row, way):
    """Seconds of all cases, and those of processors for the whole run where they were counted."""
    text = f"{sum(case[way]['seconds'] or 0 for case in row['cases'].values() if way in case):.0f}"
    processors = row.get("processor_seconds", {}).get(way)
    return text if processors is None else f"{text} ({processors:.0f})"


def main_package(name, row):
    """The package with the program's name, or the first one."""
    return next((each for each in row["packages"] if each.startswith(name)), row["packages"][0])


def table(rows):
    yield "| program | cases right natively | forwarded | seconds natively (of processors) | forwarded | round trips (and the functions with most, beyond two for each result and 100) |"
    yield "|---|---|---|---|---|---|"
    for name, row in sorted(rows.items()):
        yield (f"| {name} ({main_package(name, row)}) | {counted(row, 'native')} | {counted(row, 'forwarded')} | "
               f"{seconds(row, 'native')} | {seconds(row, 'forwarded')} | {trips_of(row)} |")


def write(path, rows):
    """Replaces what stands between the marks of the page."""
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no marks {BEGIN} and {END}")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(before + begin + "\n\n" + "\n".join(table(rows)) + "\n\n" + end + after)
