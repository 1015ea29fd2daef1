"""GpuProgram: a program that holds a GPU of a gpurund."""
import os
import subprocess

import world
from world import environment


class GpuProgram:
    """A program that holds a context on `server` until it is told to go on."""

    def __init__(self, server, *words, before=()):
        reading, self.writing = os.pipe()
        self.run = subprocess.Popen(
            [*before, world.GPURUN, *words, *server.options(), "--", world.ARGS.client, "wait"],
            stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
            text=True)
        os.close(reading)
        said = self.run.stdout.readline()
        assert said == "ready\n", said + self.run.communicate(timeout=world.SECONDS)[1]

    def go_on(self):
        os.close(self.writing)
        return self.run.communicate(timeout=world.SECONDS)
