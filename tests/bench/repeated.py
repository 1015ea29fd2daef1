"""Clients that repeat a row's calls while a profiler watches."""
import json
import subprocess

from machine import CLIENT, forwarded_environment
import sessions
import world


class NotRepeated(Exception):
    """The row does not exist, or is computed from others, or belongs to more than one thread. The
    client reports which."""


class Repeated:
    """The row's calls run from the start of `with` until `wait` returns. `told` is then the
    client's report of them."""

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
        self.client.stdout.readline()  # "over". Rows after it do not count.

    def __exit__(self, *_):
        with self.client.stdout:
            self.told = json.loads(self.client.stdout.read())[self.row]
        self.client.wait()

    def neighbours(self, server):
        """Process ids and roles of the session that saturates beside this one: the client that this
        one's client started, and the worker that receives bytes."""
        clients = sessions.clients_of(self.client.pid)
        (client,) = (pid for pid in clients if sessions.parent_of(pid) in clients)
        worker = max(server.workers(), key=lambda pid: sessions.thread_s(pid, "gpurun-bulk-in"))
        return {client: "the neighbour's client", worker: "the neighbour's worker"}
