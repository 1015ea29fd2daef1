"""Sharing: processes of one run share device memory by its handle or its descriptor. Another run with a
copied or guessed handle, or with the descriptor, opens nothing. A handle ends with the process that made it."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, gpurun  # noqa: E402

IMAGE = sys.argv.pop()
DESCRIPTORS = sys.argv.pop()
PROGRAM = sys.argv.pop()
REFUSED = "CUDA_ERROR_INVALID_VALUE\n"


class Sharing(unittest.TestCase):
    def setUp(self):
        self.server = world.Gpurund(env=environment(GPURUN_EMULATED="devices=2"))
        self.server.__enter__()
        self.addCleanup(self.server.__exit__, None, None, None)

    def command(self, *words):
        return ["-q", "--timeout", "20s", *self.server.options(), "--", *words]

    def giver(self, *words):
        """Starts a run that exports a handle. Returns the run and the handle."""
        giver = subprocess.Popen([world.GPURUN, *self.command(*words)], text=True, env=environment(),
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(giver.communicate)
        return giver, giver.stdout.readline()

    def taken(self, handle):
        done = subprocess.run([world.GPURUN, *self.command(PROGRAM, IMAGE, "take")], input=handle,
                              env=environment(), capture_output=True, text=True, timeout=60)
        return done.stdout

    def test_other_run_cannot_open_handle(self):
        giver, handle = self.giver(PROGRAM, IMAGE, "give")
        self.assertRegex(handle, "^[0-9a-f]{128}\n$")
        self.assertEqual(self.taken(handle), REFUSED)
        self.assertEqual(self.taken("5a" * 64), REFUSED)
        giver.communicate()
        self.assertEqual(giver.returncode, 0)

    def test_process_of_same_run_opens_handle_while_exporter_lives(self):
        script = ('"$0" "$1" give < "$2" > "$3" & exec 4> "$2"; read handle < "$3";'
                  'echo "$handle" | "$0" "$1" take 4>&-; exec 4>&-; wait; echo "$handle" | "$0" "$1" take')
        hold, said = (os.path.join(self.server.folder.name, name) for name in ("hold", "said"))
        os.mkfifo(hold)
        os.mkfifo(said)
        done = gpurun(*self.command("sh", "-c", script, PROGRAM, IMAGE, hold, said), env=environment())
        self.assertEqual(done.stdout, "found it\n" + REFUSED, done.stderr)

    def test_descriptor_names_nothing_in_other_run(self):
        path = os.path.join(self.server.folder.name, "wire")
        giver, said = self.giver(DESCRIPTORS, IMAGE, "give", path)
        self.assertEqual(said, "ready\n")
        taker = gpurun(*self.command(DESCRIPTORS, IMAGE, "take", path), env=environment())
        self.assertEqual(taker.stdout, REFUSED, taker.stderr)
        giver.communicate()
        self.assertEqual(giver.returncode, 0)

    def test_process_of_same_run_imports_descriptor(self):
        path = os.path.join(self.server.folder.name, "wire")
        script = '"$0" "$1" give "$2" & while [ ! -S "$2" ]; do sleep 0.05; done; "$0" "$1" take "$2"; wait'
        done = gpurun(*self.command("sh", "-c", script, DESCRIPTORS, IMAGE, path), env=environment())
        self.assertEqual(sorted(done.stdout.split("\n")), ["", "found it", "ready"], done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
