#!/usr/bin/env python3
"""Log of a delayed link: an answer left after the arrival of its request, even when the link's own
thread continues late after a send."""
import os
import socket
import sys
import tempfile
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
import chain  # noqa: E402
import world  # noqa: E402

WORDS = 400
PLAYERS = 4


def echo(end):
    with end:
        while said := end.recv(64):
            end.sendall(said)


class LinkLog(unittest.TestCase):
    def test_answer_leaves_after_request_arrives(self):
        # All on one processor, so that the receiver that a send wakes may run before the sender.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
            log = os.path.join(folder, "log")
            with world.DelayedLink(listener.getsockname()[1], 0.0002, log=log) as link:
                host, port = link.address.split(":")
                players = [threading.Thread(target=self.play, args=((host, int(port)),))
                           for _ in range(PLAYERS)]
                for player in players:
                    player.start()
                for _ in players:
                    threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()
                for player in players:
                    player.join()
            events = chain.read(log)
        for connection in chain.opened(events):
            ups, downs = ([event for event in events if event["connection"] == connection and
                           event["what"] == way] for way in ("up", "down"))
            self.assertEqual((len(ups), len(downs)), (WORDS, WORDS))
            for question, answer in zip(ups, downs):
                self.assertGreaterEqual(answer["came"], question["went"])

    def play(self, address):
        with socket.create_connection(address) as end:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(WORDS):
                end.sendall(b"a word")
                end.recv(64)


if __name__ == "__main__":
    world.main()
