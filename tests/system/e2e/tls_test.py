#!/usr/bin/env python3
"""Strangers on the network get nothing: neither from an encrypted link, nor from a gpurund that
they connect to, whatever they send and whenever they stop."""
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
import world  # noqa: E402
from world import environment, gpurun, until  # noqa: E402
from world.relay import Relay  # noqa: E402
from tls_ends import (ACCESS_DENIED, alert, AlteredHellos, answer, attach_with, audited, connected,
                      DECRYPT_ERROR, fingerprint_of, first_record, FIRST_WORD, Holder, hung_up, Plain,
                      Server, TlsRuns, UNKNOWN_KEY)  # noqa: E402

USES_TLS_AND_THE_GPU = """
import ctypes, hashlib, ssl
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
client, server = (ssl.SSLContext(way) for way in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER))
client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
server.load_cert_chain(CERTIFICATE, KEY)
ways = [ssl.MemoryBIO() for _ in range(2)]
ends = [client.wrap_bio(ways[0], ways[1]), server.wrap_bio(ways[1], ways[0], server_side=True)]
for _ in range(4):
    for end in ends:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            pass
ends[0].write(b"words")
assert ends[1].read() == b"words"
assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuCtxSynchronize() == 0
assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")
print("both work")
"""


class Tls(TlsRuns, unittest.TestCase):
    def test_tls_hides_traffic(self):
        program = [world.ARGS.client, "load", "3000"]
        for server_kind, tls, readable in ((Plain, (), True), (Server, ("--tls",), False)):
            with server_kind() as server, Relay(server.port()) as relay:
                done = self.run_program(server, address=relay.address, program=program, tls=tls)
                self.assertEqual(done.returncode, 0, done.stderr)
                until(relay.quiet, "the relay has all that the program sent")
                heard = b"".join(relay.heard)
                self.assertEqual(b".visible .entry axpy" in heard, readable)
                self.assertEqual(b"gpurun null device" in b"".join(relay.told), readable)
                if not readable:
                    self.assertTrue(all(said.startswith(b"\x16\x03") for said in relay.heard))
                    self.assertEqual(sum(FIRST_WORD in said for said in relay.heard),
                                     len(relay.heard) - 1, "each but the link names its session")

    def test_tls_adds_no_round_trip_to_control_link(self):
        with Server() as tls, Plain() as plain:
            for server, words in ((tls, ("--tls",)), (plain, ())):
                turns = []

                def change(number, from_client, _offset, data, turns=turns):
                    if number == 0 and turns[-1:] != [from_client]:
                        turns.append(from_client)
                    return data

                token = os.path.join(self.home.name, "token")
                made = subprocess.run([world.GPUCTL, "token", "create", "anna", "-o", token, "--tokens",
                                       server.tokens_file], env=environment(), capture_output=True,
                                      text=True, timeout=world.SECONDS)
                self.assertEqual(made.returncode, 0, made.stderr)
                for credential in (("--secret-file", server.secret_file), ("--token-file", token)):
                    turns.clear()
                    with Relay(server.port(), change) as relay:
                        done = gpurun(*words, *credential, "-l", relay.address, "--", "true",
                                      env=environment(XDG_CONFIG_HOME=self.home.name))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    # Hello and request alternate, or the handshake comes first and then both at
                    # once. A connect comes before.
                    self.assertEqual(turns, [True, False, True, False], words)
                os.remove(token)

    def test_tls_attach_takes_one_more_round_trip(self):
        with Plain() as plain, Server() as server:
            for one, tls, trips in ((plain, (), 2), (server, ("--tls",), 3)):
                with tempfile.NamedTemporaryFile() as statistics:
                    done = gpurun(*tls, *one.options(), "--", world.ARGS.client, "once",
                                  env=environment(XDG_CONFIG_HOME=self.home.name, GPURUN_STATS="1",
                                                  GPURUN_STATS_FILE=statistics.name))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    said = json.loads(statistics.read().decode().splitlines()[-1])
                self.assertEqual(said["attach_round_trips"], trips)

    def test_program_reports_why_ticket_is_refused(self):
        for field, sentence in (("lease", "the lease is over, or that server never granted it"),
                                ("ticket", "the lease is over, or that server never granted it"),
                                ("session", "the ticket is not proved"),
                                ("binder", "the ticket is not proved")):
            with Server() as server, Relay(server.port(), AlteredHellos(field)) as relay:
                done = self.run_program(server, address=relay.address)
                self.assertNotEqual(done.returncode, 0, field)
                self.assertIn(sentence, done.stderr)
                # The worker that was prepared for the lease ended with the program.
                until(lambda server=server: not server.workers(), "the lease's worker ends")
                self.assertIn(" attach.refused ", audited(server))
                self.assertNotIn("session.started", audited(server))
                self.assert_open_for_honest(server)
                self.assertRegex(audited(server), ' session.started .* from="tls 1.3 over tcp ')

    def test_altered_hellos_changes_intended_byte_in_any_fragmentation(self):
        name = FIRST_WORD + b"L" * 16 + b"T" * 16 + b"S" * 16
        inside = b"\x01\x00\x00\x99" + name + b"\x00" * 4 + b"\x00\x21\x20" + b"B" * 32
        hello = b"\x16\x03\x01" + len(inside).to_bytes(2, "big") + inside
        other = hello.replace(FIRST_WORD, b"?" * len(FIRST_WORD))  # As on a link.
        for field, byte, back in (("lease", b"L", 87), ("ticket", b"T", 71), ("session", b"S", 55),
                                  ("binder", b"B", 1)):
            place = len(hello) - back
            self.assertEqual(hello[place:place + 1], byte)
            said = hello + b"behind"
            right = said[:place] + bytes((said[place] ^ 1,)) + said[place + 1:]
            for cut in range(len(said) + 1):
                change = AlteredHellos(field)
                for number, whole, expected in ((0, other, other), (1, said, right)):
                    passed = b""
                    for piece in (whole[:cut], whole[cut:]):
                        passed += change(number, True, len(passed), piece) if piece else b""
                    self.assertEqual(passed, expected, (field, cut))
            self.assertEqual(change(1, False, 0, hello), hello, "the server's words pass")

    def test_tls_mismatch_is_reported(self):
        with Server() as server, Plain() as plain:
            done = self.run_program(server, tls=())
            self.assertEqual(done.returncode, 125)
            self.assertIn("this server speaks TLS only; use --tls", done.stderr)
            done = self.run_program(plain)
            self.assertEqual(done.returncode, 125)
            self.assertIn("it has no certificate", done.stderr)
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            def hang_up():
                near, _ = deaf.accept()
                near.recv(4096)
                near.close()
            threading.Thread(target=hang_up, daemon=True).start()
            address = "127.0.0.1:%d" % deaf.getsockname()[1]
            done = gpurun("--tls", "-l", address, "--", "true",
                          env=environment(XDG_CONFIG_HOME=self.home.name))
        self.assertEqual(done.returncode, 125)
        self.assertIn("hung up", done.stderr)
        self.assertIn("speaks no TLS", done.stderr)

    def test_older_tls_is_refused(self):
        with Server() as server:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with connected(server) as to, self.assertRaises(ssl.SSLError):
                context.wrap_socket(to)
            self.assert_open_for_honest(server)

    def test_man_in_the_middle_cannot_relay_proof(self):
        with Server() as server, tempfile.TemporaryDirectory() as state:
            fingerprint_of(state)  # Makes a certificate for it.
            near_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            near_side.load_cert_chain(*(os.path.join(state, "server-" + part + ".pem")
                                        for part in ("certificate", "key")))
            far_side = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            far_side.check_hostname, far_side.verify_mode = False, ssl.CERT_NONE
            seen = []

            def relay(listener):
                near = near_side.wrap_socket(listener.accept()[0], server_side=True)
                with near, far_side.wrap_socket(connected(server)) as far:
                    seen.append(near.recv(4096))  # The hello and its whole proof, in one record.
                    far.sendall(seen[-1])
                    while data := far.recv(4096):
                        seen.append(data)
                        near.sendall(data)

            with socket.create_server(("127.0.0.1", 0)) as listener:
                threading.Thread(target=relay, args=(listener,), daemon=True).start()
                done = self.run_program(server, address="127.0.0.1:%d" % listener.getsockname()[1])
            self.assertEqual(done.returncode, 125)
            self.assertIn("secret is wrong", done.stderr)
            self.assertIn(b"grun", seen[0], "the words do pass")
            self.assertGreaterEqual(len(seen), 3, "and the answers to the hello and to the request")
            self.assertFalse(server.workers())

    def test_altered_record_ends_session_with_one_error(self):
        for from_client in (True, False):
            armed = threading.Event()

            def change(number, client_speaks, _offset, data, from_client=from_client, armed=armed):
                # The log of the session: the first connection after the link, after its handshake.
                if not armed.is_set() or number == 0 or client_speaks != from_client:
                    return data
                armed.clear()
                return data[:-1] + bytes((data[-1] ^ 1,))

            with Server() as server, Relay(server.port(), change) as relay:
                holder = Holder(server, relay.address, self.home.name)
                armed.set()
                status, _, errors = holder.go_on()
                self.assertNotEqual(status, 0)
                self.assertEqual(errors.count("altered on the way"), 1, errors + server.log())
                until(lambda server=server: not server.workers(), "the worker ends")
                self.assert_open_for_honest(server)

    def test_replayed_hello_is_refused(self):
        with Server() as server:
            with Relay(server.port()) as relay:
                holder = Holder(server, relay.address, self.home.name)
                hellos = [first_record(said) for said in relay.heard if FIRST_WORD in said]
                self.assertGreaterEqual(len(hellos), 2)
                for hello in hellos:
                    self.assertEqual(answer(server, hello), alert(ACCESS_DENIED))
                self.check_altered(server, hellos[0])
                self.assertEqual(len(server.workers()), 1)
                self.assertEqual(holdings_of(server, self.home.name)["gathering"], 0)
                status, _, errors = holder.go_on()
                self.assertEqual(status, 0, errors)
            until(lambda: holdings_of(server, self.home.name)["leases"] == 0, "the lease ends")
            self.assertEqual(answer(server, hellos[0]), alert(UNKNOWN_KEY), "its lease is over")
            self.assert_open_for_honest(server)

    def check_altered(self, server, hello):
        """Changes the lease, the ticket, the session and the proof."""
        at = hello.index(FIRST_WORD) + len(FIRST_WORD)
        for offset, expected in ((0, UNKNOWN_KEY), (16, UNKNOWN_KEY), (32, DECRYPT_ERROR),
                                 (len(hello) - at - 1, DECRYPT_ERROR)):
            place = at + offset
            altered = hello[:place] + bytes((hello[place] ^ 1,)) + hello[place + 1:]
            self.assertEqual(answer(server, altered), alert(expected), offset)

    def test_ticket_of_other_lease_is_refused(self):
        driver = world.DRIVERS["emulated"]
        if not os.path.exists(driver):
            self.skipTest("one lease at a time: this build has no emulated device")
        with (Server(driver=driver, changes={"GPURUN_EMULATED": "devices=2"}) as server,
              Relay(server.port()) as relay):
            holders = [Holder(server, relay.address, self.home.name) for _ in range(2)]
            hellos = [first_record(said) for said in relay.heard if FIRST_WORD in said]
            names = [hello[hello.index(FIRST_WORD) + len(FIRST_WORD):][:32] for hello in hellos]
            one, two = names[0], names[-1]
            self.assertNotEqual(one[:16], two[:16])
            self.assertNotEqual(one[16:], two[16:])
            # Each lease with the ticket of the other, which is alive.
            for hello, name, other in ((hellos[0], one, two), (hellos[-1], two, one)):
                mixed = hello.replace(name, name[:16] + other[16:])
                self.assertEqual(answer(server, mixed), alert(UNKNOWN_KEY))
            self.check_thief(server, *(holder.session() for holder in holders))
            for holder in holders:
                status, _, errors = holder.go_on()
                self.assertEqual(status, 0, errors)

    def check_thief(self, server, own, other):
        """A thief has a ticket, and proves it with its key: for the lease that it opens, and for
        another."""
        self.assertEqual(own["security"], "tls")
        self.assertEqual(len(server.workers()), 2)
        for words, told in (
                (own, None),
                ({**own, "lease": other["lease"]}, "the lease is over, or that server never granted it"),
                ({**own, "ticket": other["ticket"]}, "the lease is over, or that server never granted it"),
                ({**other, "key": own["key"]}, "the ticket is not proved"),
                ({**other, "challenge": own["challenge"]}, "the ticket is not proved")):
            done = attach_with(words, self.home.name)
            self.assertEqual(done.returncode == 0, told is None, done.stderr)
            self.assertIn(told or "", done.stderr)
            until(lambda: len(server.workers()) == 2, "only the holders have workers")

    def test_garbage_does_not_lock_clients_out(self):
        with Server() as server:
            with Relay(server.port()) as relay:
                self.assertEqual(self.run_program(server, address=relay.address).returncode, 0)
            said = relay.heard[0]
            hello = said[:5 + int.from_bytes(said[3:5], "big")]
            noise = os.urandom(3000)
            for words in (b"\x16" + noise, b"\x16\x03\x01\xff\xff" + noise, b"\x16\x03\x01\x00\x00",
                          b"\x16\x03\x01" + len(noise).to_bytes(2, "big") + noise,
                          hello[:1], hello[:4], hello[:-1], hello + noise, hello + hello,
                          said, b"\x15\x03\x03\x00\x02\x02\x28", b"\x17\x03\x03\x00\x20" + noise):
                with connected(server) as to:
                    try:  # It reads until the server closes the connection, which happens at once.
                        to.sendall(words)
                        to.shutdown(socket.SHUT_WR)
                        while to.recv(4096):
                            pass
                    except OSError as error:
                        self.assertNotIsInstance(error, TimeoutError)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            for inside in (noise, b"grun", b""):
                with context.wrap_socket(connected(server)) as to:
                    to.sendall(inside)
                    to.shutdown(socket.SHUT_RDWR)
            until(lambda: holdings_of(server, self.home.name)["half_open"] <= 1, "strangers leave")
            self.assertFalse(server.workers())
            self.assert_open_for_honest(server)

    def test_unfinished_handshakes_do_not_lock_clients_out(self):
        with Server(changes={"GPURUN_LOG": "info"}) as server:
            with Relay(server.port()) as relay:
                self.assertEqual(self.run_program(server, address=relay.address).returncode, 0)
            whole = first_record(relay.heard[0])
            self.assertNotIn(FIRST_WORD, whole, "a link's: the server shows its certificate")
            for kinds in ((b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", whole), (whole,)):
                said = len(server.log())
                strangers = [connected(server) for _ in range(64)]
                for number, stranger in enumerate(strangers):
                    stranger.sendall(kinds[number % len(kinds)])
                # A complete hello starts a handshake: the server has sent its part, and waits.
                for stranger in strangers[len(kinds) - 1::len(kinds)]:
                    self.assertEqual(stranger.recv(3), b"\x16\x03\x03")
                self.assert_open_for_honest(server)
                self.assertTrue(any(map(hung_up, strangers)), "they held all places")
                self.assertTrue("makes room for another" in server.log()[said:], "only time made room")
                for stranger in strangers:
                    stranger.close()

    def test_reset_during_handshake_reports_error(self):
        with Server() as server:
            def cut(number, from_client, _offset, data):
                if number > 0 and not from_client:
                    raise ConnectionResetError
                return data
            with Relay(server.port(), cut) as relay:
                done = self.run_program(server, address=relay.address)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("TLS handshake", done.stderr)
            until(lambda: not server.workers(), "the worker ends")
            self.assert_open_for_honest(server)

    def test_program_can_use_its_own_openssl(self):
        if world.ARGS.sanitizer == "thread":
            self.skipTest("a library with ThreadSanitizer enters no Python without it")
        with Server() as server:
            files = [os.path.join(server.state.name, "server-" + part + ".pem")
                     for part in ("certificate", "key")]
            script = USES_TLS_AND_THE_GPU.replace("CERTIFICATE", repr(files[0])).replace(
                "KEY", repr(files[1]))
            done = self.run_program(server, program=[sys.executable, "-c", script])
            self.assertEqual((done.returncode, done.stdout), (0, "both work\n"), done.stderr)


def holdings_of(server, home):
    done = subprocess.run([world.GPUCTL, "list", "--json", "--tls", *server.options()],
                          env=environment(XDG_CONFIG_HOME=home), capture_output=True, text=True,
                          timeout=2 * world.SECONDS)
    if done.returncode != 0:
        raise RuntimeError("gpuctl: " + done.stderr)
    return json.loads(done.stdout)


if __name__ == "__main__":
    world.main()
