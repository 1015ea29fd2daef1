#!/usr/bin/env python3
"""A client connects only to the server that it means: by a remembered key, a fingerprint, an authority
that signed the server's certificate, or a token that names the server."""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, gpurun, until  # noqa: E402
from world.relay import Relay  # noqa: E402
from tls_ends import fingerprint_of, NO_FINGERPRINT, Plain, Server, TlsRuns  # noqa: E402


class ServerKey(TlsRuns, unittest.TestCase):
    def test_client_remembers_key_and_refuses_changed_key(self):
        with Server() as server:
            with Relay(server.port()) as relay:
                first = self.run_program(server, address=relay.address)
                self.assertEqual(first.returncode, 0, first.stderr)
                self.assertIn(fingerprint_of(server.state.name), first.stderr)
                again = self.run_program(server, address=relay.address)
                self.assertEqual((again.returncode, again.stderr), (0, ""))
                with Server() as other:
                    relay.target = ("127.0.0.1", other.port())
                    changed = self.run_program(other, address=relay.address)
                    self.assertEqual(changed.returncode, 125)
                    for word in ("shows another key", "known_servers:1", "gpurund --fingerprint",
                                 fingerprint_of(server.state.name), fingerprint_of(other.state.name)):
                        self.assertIn(word, changed.stderr)
                    self.assertFalse(other.workers())
            path = os.path.join(self.home.name, "gpurun", "known_servers")
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            os.chmod(path, 0o666)
            self.assertIn("cannot be believed", self.run_program(server).stderr)

    def test_fingerprint_or_authority_overrides_known_servers(self):
        with Server() as server:
            right = fingerprint_of(server.state.name)
            done = self.run_program(server, "--server-fingerprint", right)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertFalse(os.listdir(self.home.name), "nobody is met")
            done = self.run_program(server, "--server-fingerprint", NO_FINGERPRINT)
            self.assertEqual(done.returncode, 125)
            self.assertIn("not the expected key", done.stderr)
            done = self.run_program(server, "--server-fingerprint", "sha256:12")
            self.assertIn("is no fingerprint", done.stderr)
            own = os.path.join(server.state.name, "server-certificate.pem")
            done = self.run_program(server, "--tls-ca", own)  # It is for another name.
            self.assertEqual(done.returncode, 125)
            self.assertIn("certificate is not trusted", done.stderr)
            done = self.run_program(server, "--tls-ca", "/etc/hostname")
            self.assertIn("no certificates of authorities", done.stderr)
            self.assertFalse(server.workers())

    def test_expected_key_requires_tls_on_local_address(self):
        """`ssh -L` makes an address of this machine that may lead to any server."""
        with Server() as server, Plain() as plain:
            right = fingerprint_of(server.state.name)
            own = os.path.join(server.state.name, "server-certificate.pem")
            done = self.run_program(server, "--server-fingerprint", right, tls=())
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            for target, words, said in (
                    (server, ("--server-fingerprint", NO_FINGERPRINT), "not the expected key"),
                    (server, ("--tls-ca", own), "certificate is not trusted"),
                    (plain, ("--server-fingerprint", right), "it has no certificate"),
                    (plain, ("--tls-ca", own), "it has no certificate")):
                with Relay(target.port()) as relay:
                    done = self.run_program(target, *words, address=relay.address, tls=())
                    until(relay.quiet, "the relay has all that the program sent")
                    heard = list(relay.heard)
                self.assertEqual(done.returncode, 125, words)
                self.assertIn(said, done.stderr)
                self.assertTrue(heard and all(said.startswith(b"\x16\x03") for said in heard), heard)
            listed = subprocess.run([world.GPUCTL, "list", *plain.options(), "--server-fingerprint", right],
                                    env=environment(XDG_CONFIG_HOME=self.home.name), capture_output=True,
                                    text=True, timeout=world.SECONDS)
            self.assertEqual(listed.returncode, 125)
            self.assertIn("it has no certificate", listed.stderr)
            # A token that names its server also requires TLS.
            token = os.path.join(self.home.name, "token")
            for one, status in ((server, 0), (plain, 125)):
                made = subprocess.run(
                    [world.GPUCTL, "token", "create", "anna", "--server-fingerprint", right, "-o", token,
                     "--tokens", one.tokens_file], env=environment(), capture_output=True, text=True,
                    timeout=world.SECONDS)
                self.assertEqual(made.returncode, 0, made.stderr)
                done = gpurun("--token-file", token, "-l", one.address, "--", world.ARGS.client, "once",
                              env=environment(XDG_CONFIG_HOME=self.home.name))
                self.assertEqual(done.returncode, status, done.stderr)
                done = gpurun("--token-file", token, "--insecure-plaintext", "-l", one.address, "--", "true",
                              env=environment(XDG_CONFIG_HOME=self.home.name))
                self.assertIn("the server's key is named", done.stderr)
                os.remove(token)
            self.assertFalse(plain.workers())

    def test_expected_key_conflicts_with_plaintext_option(self):
        with Server() as server:
            for words, changes in (
                    (("--insecure-plaintext",), {}), ((), {"GPURUN_INSECURE_PLAINTEXT": "1"}),
                    (("--insecure-plaintext", "--tls"), {})):
                for key in (("--server-fingerprint", NO_FINGERPRINT), ("--tls-ca", "/etc/hostname")):
                    done = gpurun(*words, *key, *server.options(), "--", "echo", "ran",
                                  env=environment(XDG_CONFIG_HOME=self.home.name, **changes))
                    self.assertEqual((done.returncode, done.stdout), (125, ""), done.stderr)
                    self.assertIn("the server's key is named", done.stderr)
                    self.assertIn("leave out --insecure-plaintext", done.stderr)

    def test_first_contact_prints_key_despite_quiet_option(self):
        with Server() as server:
            first = self.run_program(server, "-q")
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertIn(fingerprint_of(server.state.name), first.stderr)
            again = self.run_program(server, "-q")
            self.assertEqual((again.returncode, again.stderr), (0, ""))

    def sign(self, name, words, signer=None, days="30"):
        """Makes a certificate for `words` (subjectAltName), signed by `signer` or by itself.
        Returns its files."""
        key, request, certificate = (os.path.join(self.home.name, name + end)
                                     for end in (".key", ".csr", ".pem"))
        extensions = os.path.join(self.home.name, name + ".ext")
        with open(extensions, "w", encoding="ascii") as file:
            file.write("subjectAltName=" + words if signer else "basicConstraints=critical,CA:TRUE")
        made = ["-CA", signer[0], "-CAkey", signer[1], "-CAcreateserial"] if signer else ["-signkey", key]
        for command in (["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key],
                        ["req", "-new", "-key", key, "-subj", "/CN=" + name, "-out", request],
                        ["x509", "-req", "-in", request, *made, "-days", days, "-out", certificate,
                         "-extfile", extensions]):
            subprocess.run(["openssl", *command], check=True, capture_output=True, timeout=world.SECONDS)
        os.chmod(key, 0o600)
        return certificate, key

    def test_client_trusts_authority_signed_certificate_for_host(self):
        if shutil.which("openssl") is None:
            self.skipTest("there is no openssl command")
        authority, stranger = self.sign("authority", ""), self.sign("stranger", "")
        for name, words, signer, trouble in (
                ("right", "IP:127.0.0.1", authority, None),
                ("of_another", "IP:127.0.0.1", stranger, "certificate is not trusted"),
                ("elsewhere", "DNS:elsewhere.example", authority, "certificate is not trusted")):
            certificate, key = self.sign(name, words, signer)
            with Server("--tls-certificate", certificate, "--tls-key", key) as server:
                done = self.run_program(server, "--tls-ca", authority[0])
                self.assertEqual(done.returncode, 0 if trouble is None else 125, done.stderr)
                self.assertIn(trouble or "", done.stderr)
                if trouble is None:
                    self.assertEqual(done.stderr, "")
                    listed = subprocess.run(
                        [world.GPUCTL, "list", "--tls", "--tls-ca", authority[0], *server.options()],
                        env=environment(XDG_CONFIG_HOME=self.home.name), capture_output=True,
                        text=True, timeout=2 * world.SECONDS)
                    self.assertEqual((listed.returncode, listed.stderr), (0, ""))
                else:
                    self.assertFalse(server.workers())
        self.assertFalse(os.path.exists(os.path.join(self.home.name, "gpurun")), "nobody is met")

    def test_token_with_fingerprint_works_only_at_its_server(self):
        with Server() as server, Server() as other:
            token = os.path.join(self.home.name, "token")
            made = subprocess.run(
                [world.GPUCTL, "token", "create", "anna", "--server-fingerprint", "own", "-o", token,
                 "--tokens", server.tokens_file],
                env=environment(), capture_output=True, text=True, timeout=world.SECONDS)
            self.assertEqual(made.returncode, 0, made.stderr)
            with open(token, encoding="ascii") as file:
                self.assertIn(fingerprint_of(server.state.name)[len("sha256:"):], file.read())
            for one, status in ((server, 0), (other, 125)):
                done = gpurun("--tls", "--token-file", token, "-l", one.address, "--",
                              world.ARGS.client, "once", env=environment(XDG_CONFIG_HOME=self.home.name))
                self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn("not the expected key", done.stderr)
            self.assertFalse(os.path.exists(os.path.join(self.home.name, "gpurun")), "nobody is met")

    def test_token_create_prints_server_key(self):
        with Server() as server, Plain() as plain:
            right = fingerprint_of(server.state.name)
            for one, words, status, told in (
                    (server, (), 0, f"this server's key is {right}; give it to the user"),
                    (server, ("--server-fingerprint", right.upper()[len("SHA256:"):]), 0, ""),
                    (server, ("--server-fingerprint", NO_FINGERPRINT), 0,
                     f"warning: this server's key is {right}, not the one that the token names"),
                    (server, ("--server-fingerprint", "sha256:1"), 2, "is no fingerprint"),
                    (plain, (), 0, ""),
                    (plain, ("--server-fingerprint", "own"), 2, "has shown a key yet")):
                made = subprocess.run(
                    [world.GPUCTL, "token", "create", "anna", *words, "--tokens", one.tokens_file],
                    env=environment(), capture_output=True, text=True, timeout=world.SECONDS)
                self.assertEqual(made.returncode, status, made.stderr)
                self.assertIn(told, made.stderr)
                self.assertEqual("this server's key" in made.stderr, told.find("this server's") >= 0)


if __name__ == "__main__":
    world.main()
