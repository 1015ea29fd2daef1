"""Counts round trips in the log of a delayed link (tests/support/delayed_link.cc): the longest chain
of messages of which each was sent after the one before had arrived. It infers nothing from times.
On a link that is slow compared to the computation, this is how often the client's side must have
waited."""
import json


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def opened(events, before=None, since=None):
    """Numbers of the connections that were opened in that time."""
    return {event["connection"] for event in events if event["what"] == "open" and
            (before is None or event["came"] < before) and (since is None or event["came"] >= since)}


def round_trips(events, connections, until=None):
    """Round trips of these connections until a moment. The ends of the connections share their
    knowledge. A connect is one round trip."""
    steps = []  # (when, order within a moment, what, event)
    for event in events:
        if event["connection"] not in connections:
            continue
        if event["what"] == "open":
            steps.append((event["came"], 0, "open", event))
        else:
            steps.append((event["went"], 1, "arrives", event))
            steps.append((event["came"], 2, "leaves", event))
    client = server = 0  # Round trips that the knowledge of either side has taken.
    established, carried = {}, {}
    for when, _, what, event in sorted(steps, key=lambda step: step[:2]):
        if until is not None and when > until:
            break
        connection = event["connection"]
        if what == "open":
            established[connection] = client + 1
        elif what == "leaves" and event["what"] == "up":
            carried[id(event)] = max(client, established[connection])
        elif what == "leaves":
            carried[id(event)] = server + 1
        elif event["what"] == "up":
            server = max(server, carried[id(event)])
        else:
            client = max(client, carried[id(event)])
    return client


def hand_over_ns(events, connections):
    """Time from the server's first bytes received on a connection to its first bytes sent there,
    for the connection that it answered first. Bytes on the others need not have arrived by then."""
    first_up, first_down = {}, {}
    for event in events:
        if event["connection"] in connections and event["bytes"] > 0:
            if event["what"] == "up":
                first_up.setdefault(event["connection"], event["went"])
            elif event["what"] == "down":
                first_down.setdefault(event["connection"], event["came"])
    answered = min(first_down, key=first_down.get)
    return first_down[answered] - first_up[answered]


def bytes_of(events, way):
    return sum(event["bytes"] for event in events if event["what"] == way)
