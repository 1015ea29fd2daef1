"""Clients that make a row's calls again and again, for who looks on."""
import json
import subprocess

from machine import CLIENT, forwarded_environment
import sessions
import world


class NotRepeated(Exception):
    """Of no such row, or one that is computed from others' or is no single thread's: the client says what it is."""


class Repeated:
    """From `with` on the row's calls are made, until `wait` returns; `told` is then what the client says of them."""

    def __init__(self, machine, server, seconds, row, words, placement="free", **changes):
        self.row = row
        self.client = subprocess.Popen(
            machine.gpurun(server, [CLIENT, "--row", row, str(seconds), *words], placement=placement),
            env=forwarded_environment(server, **changes), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True)

    def __enter__(self):
        if self.client.stdout.readline() != "ready\n":
            self.client.wait()
            raise NotRepeated(self.row)
        return self

    def wait(self):
        self.client.stdout.readline()  # "over": rows behind it are no part of it.

    def __exit__(self, *_):
        with self.client.stdout:
            self.told = json.loads(self.client.stdout.read())[self.row]
        self.client.wait()

    def neighbours(self, server):
        """Process ids and roles of the session that saturates beside this one: the client that this one's started,
        and the worker to which bytes come."""
        clients = sessions.clients_of(self.client.pid)
        (client,) = (pid for pid in clients if sessions.parent_of(pid) in clients)
        worker = max(server.workers(), key=lambda pid: sessions.thread_s(pid, "gpurun-bulk-in"))
        return {client: "the neighbour's client", worker: "the neighbour's worker"}
