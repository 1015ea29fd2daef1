#!/usr/bin/env python3
"""gpuctl health: a healthy machine and server pass, each fault fails with its remedy, and the docs explain every
check. bitfusion_test.py has more faults of a client's installation."""
import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, start  # noqa: E402

PAGE = os.path.join(os.path.dirname(__file__), "../../../docs/network.md")
SOURCES = os.path.join(os.path.dirname(__file__), "../../../tools/gpuctl/health")


def health(*words, env=None):
    return subprocess.run([world.GPUCTL, "health", *words], env=env or environment(), capture_output=True, text=True,
                          timeout=2 * world.SECONDS, stdin=subprocess.DEVNULL)


def close_each(listener):
    with contextlib.suppress(OSError):  # At the end of the listener.
        while True:
            listener.accept()[0].close()


class Health(unittest.TestCase):
    def checked(self, *words, failing=(), env=None):
        """The checks, by name. Exactly those of `failing` fail."""
        done = health("--json", *words, env=env)
        report = json.loads(done.stdout)
        self.assertEqual((done.returncode, done.stderr), (1 if failing else 0, ""), done.stdout)
        found = {}
        for check in report["checks"]:
            found.setdefault(check["check"], []).append(check)
            self.assertEqual(check["verdict"] in ("failed", "warning"), check["fix"] is not None, check)
        failed = [check["check"] for check in report["checks"] if check["verdict"] == "failed"]
        self.assertEqual(failed, list(failing), report)
        self.assertEqual((report["failed"], sum(len(each) for each in found.values())),
                         (len(failing), len(report["checks"])))
        return found

    def test_healthy_server_passes_each_step(self):
        with world.Gpurund() as server:
            found = self.checked(*server.options())
        for name in ("programs", "libraries", "name", "port", "token", "versions", "gpus"):
            self.assertEqual({check["verdict"] for check in found[name]}, {"ok"}, found[name])
        self.assertEqual(found["tls"][0]["verdict"], "n/a")
        self.assertIn("loopback", found["tls"][0]["text"])
        self.assertEqual(found["clock"][0]["verdict"], "ok")
        self.assertRegex(found["clock"][0]["text"], r"is \d s (behind|ahead)")
        self.assertEqual(found["path-mtu"][0]["verdict"], "ok")
        self.assertRegex(found["path-mtu"][0]["text"], r"up to \d+ bytes, as lo allows")
        self.assertIn("the user trusts no fabric", found["rdma"][0]["text"])

    def test_server_may_be_the_commands_word(self):
        with world.Gpurund() as server:
            found = self.checked(server.address, env=environment(GPURUN_SECRET_FILE=server.secret_file))
        self.assertIn(server.address, found["token"][0]["text"])
        self.assertIn("named by the command line", found["servers"][0]["text"])

    def test_leased_gpu_is_a_warning(self):
        with world.Gpurund() as server:
            run = start(*server.options(), "--", "sh", "-c", "echo ready; exec sleep 1000")
            run.stdout.readline()
            found = self.checked(*server.options())
            run.kill()
            run.communicate(timeout=world.SECONDS)
        self.assertEqual(found["gpus"][0]["verdict"], "warning")

    def test_each_failed_step_ends_the_checks_of_its_server(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            gone = "127.0.0.1:%d" % listener.getsockname()[1]
        found = self.checked("-l", gone, failing=["port"])
        self.assertIn(f"no server at {gone}", found["port"][0]["text"])
        self.assertIn("gpurund --listen", found["port"][0]["fix"])
        self.assertNotIn("token", found)
        found = self.checked("no-such-host.invalid", failing=["name"])
        self.assertNotIn("port", found)
        with world.Gpurund() as server, tempfile.TemporaryDirectory() as folder:
            found = self.checked("-l", server.address, failing=["token"], env=environment(XDG_RUNTIME_DIR=folder))
            self.assertIn("wants a token", found["token"][0]["text"])
            # The other server of the list is checked, too.
            found = self.checked("-l", f"{gone},{server.address}", "--secret-file", server.secret_file,
                                 failing=["port"])
            self.assertEqual(len(found["port"]), 2)
            self.assertEqual(found["token"][0]["verdict"], "ok")

    def test_unknown_key_is_a_warning(self):
        with world.Gpurund("--tls") as server:
            first = self.checked(*server.options(), "--tls")
            again = self.checked(*server.options(), "--tls")
        for found, said in ((first, "for the first time"), (again, "that of the first connection")):
            self.assertEqual(found["tls"][0]["verdict"], "warning")
            self.assertIn(said, found["tls"][0]["text"])
            self.assertIn("gpurun login", found["tls"][0]["fix"])

    def test_server_that_wants_tls_has_a_remedy(self):
        with world.Gpurund("--tls") as server:
            found = self.checked("-l", server.address, "--secret-file", server.secret_file, failing=["tls"])
        self.assertIn("speaks TLS only", found["tls"][0]["text"])
        self.assertEqual(found["tls"][0]["fix"], "add --tls")

    def test_wrong_credential_and_servers_fail_beside_other_checks(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "token")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write("no token")
            found = self.checked("--token-file", path, "-l", "127.0.0.1:1", failing=["token"])
            self.assertIn(path, found["token"][0]["text"])
            self.assertIn("memlock", found)
        found = self.checked("-s", "/no/such/file", failing=["servers"])
        self.assertIn("/no/such/file", found["servers"][0]["text"])

    def test_local_checks_contact_no_server(self):
        found = self.checked("--local", "-l", "127.0.0.1:1")
        self.assertEqual(found["servers"][0]["verdict"], "ok")
        self.assertNotIn("port", found)

    def test_needed_server_that_nothing_names_fails(self):
        if os.path.exists("/etc/gpurun/servers"):
            self.skipTest("this machine has /etc/gpurun/servers")
        with tempfile.TemporaryDirectory() as folder:
            env = environment(GPURUN_SERVERS=None, XDG_CONFIG_HOME=folder)
            found = self.checked("--local", "--need-server", failing=["servers"], env=env)
            self.assertIn("gpurun login HOST", found["servers"][0]["fix"])
            self.assertEqual(self.checked("--local", env=env)["servers"][0]["verdict"], "warning")

    def test_gpurund_of_this_machine_is_no_named_server(self):
        if os.path.exists("/etc/gpurun/servers"):
            self.skipTest("this machine has /etc/gpurun/servers")
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            try:
                own = stack.enter_context(socket.create_server(("127.0.0.1", 4790)))
                threading.Thread(target=close_each, args=(own,), daemon=True).start()
                stack.callback(own.shutdown, socket.SHUT_RDWR)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise  # Else a gpurund of another test listens there.
            env = environment(GPURUN_SERVERS=None, XDG_CONFIG_HOME=folder)
            for words, verdict in (((), "n/a"), (("--need-server",), "failed")):
                done = health("--json", *words, env=env)
                checks = json.loads(done.stdout)["checks"]
                found = {check["check"]: check["verdict"] for check in checks}
                self.assertEqual(found["servers"], verdict, checks)
                self.assertIn("port", found)  # It is checked in both cases.

    def test_text_has_same_checks_and_counts(self):
        done = health("--local")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        lines = done.stdout.splitlines()
        shown = [line.split()[1] for line in lines[:-1] if not line.startswith(" ")]
        self.assertEqual(shown, [check["check"] for check in json.loads(health("--json", "--local").stdout)["checks"]])
        self.assertRegex(lines[-1], r"^\d+ ok, \d+ warnings?, 0 failed, \d+ not applicable$")

    def test_limit_of_descriptors_is_seen(self):
        done = subprocess.run(["sh", "-c", 'ulimit -n 200; exec "$0" health --local', world.GPUCTL], env=environment(),
                              capture_output=True, text=True, timeout=world.SECONDS, check=True)
        self.assertRegex(done.stdout, r"(?m)^warning +descriptors +open files \(ulimit -n\): 200,")

    def test_silent_server_ends_in_time_and_by_ctrl_c(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            run = subprocess.Popen([world.GPUCTL, "health", "-l", "127.0.0.1:%d" % silent.getsockname()[1]],
                                   env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            silent.accept()[0].close()  # Of the check of the port.
            connection, _ = silent.accept()
            with connection:
                run.send_signal(signal.SIGINT)
                run.communicate(timeout=world.SECONDS)
        self.assertEqual(run.returncode, -signal.SIGINT)

    def test_docs_explain_every_check(self):
        with open(PAGE, encoding="utf-8") as file:
            sections = set(re.findall(r"(?m)^### ([a-z-]+)$", file.read()))
        names = set()
        for name in os.listdir(SOURCES):
            with open(os.path.join(SOURCES, name), encoding="utf-8") as file:
                text = file.read()
            names.update(re.findall(r'(?:\b(?:ok|warning|failed|fault|not_applicable)\(|name = )\s*"([a-z-]+)"', text))
            names.update(re.findall(r'\{"[^"]+", "([a-z]+)",', text))  # remedy_of()
        self.assertIn("memlock", names)
        self.assertIn("verbs-port", names)
        self.assertEqual(names - sections, set(), "checks without a section in docs/network.md")
        self.assertEqual(sections - names, set(), "sections without a check")


if __name__ == "__main__":
    world.main()
