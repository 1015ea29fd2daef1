"""Links whose bytes take their time: they are late, slow, or come in odd pieces."""
import collections
import random
import socket
import threading
import time

from .between import Between

PIECE_BYTES = 16 << 10  # What a slow link sends of one connection before it turns to the next.
HELD_BYTES = 128 << 10  # Of one connection before a slow link; its sender has to wait then.


class _SlowWire:
    """One direction of a slow link: connections take turns, as TCP shares a wire among them."""

    def __init__(self, bytes_per_s):
        self.bytes_per_s, self.changed = bytes_per_s, threading.Condition()
        self.waiting = collections.OrderedDict()  # By connection: its pieces and where they go.
        threading.Thread(target=self._run, daemon=True).start()

    def send(self, connection, data, deliver):
        """Returns once the wire holds no more of the connection than it may."""
        with self.changed:
            pieces = self.waiting.setdefault(connection, collections.deque())
            pieces.extend((data[at:at + PIECE_BYTES], deliver)
                          for at in range(0, len(data), PIECE_BYTES) or (0,))
            self.changed.notify_all()
            while sum(len(piece) for piece, _ in self.waiting.get(connection, ())) > HELD_BYTES:
                self.changed.wait()

    def _run(self):
        free_at = time.monotonic()
        while True:
            with self.changed:
                while not self.waiting:
                    self.changed.wait()
                connection, pieces = self.waiting.popitem(last=False)
                piece, deliver = pieces.popleft()
                if pieces:
                    self.waiting[connection] = pieces  # Behind the others.
                self.changed.notify_all()
            # A wire that was awake too late makes up for it.
            free_at = max(free_at, time.monotonic() - 0.05) + len(piece) / self.bytes_per_s
            time.sleep(max(0.0, free_at - time.monotonic()))
            deliver(piece)


class DelayedLink(Between):
    """A TCP relay that keeps each byte half of `round_trip_s` in either direction. `bytes_per_s`: what
    all connections together may send in one. `seed`: pieces of any size are kept up to three times as
    long, each connection's for itself, so that what one brings overtakes what another does."""

    def __init__(self, port, round_trip_s, bytes_per_s=None, seed=None):
        self.delay = round_trip_s / 2
        self.wires = bytes_per_s and (_SlowWire(bytes_per_s), _SlowWire(bytes_per_s))
        self.chance = None if seed is None else random.Random(seed)
        super().__init__(port)

    def _serve(self, near):
        # A connection costs a round trip before its first byte: connect() to us costs none.
        far = socket.create_connection(self.target)
        for connection in (near, far):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with near, far:
            answers = threading.Thread(target=self._relay, args=(far, near, 0, 1), daemon=True)
            answers.start()
            self._relay(near, far, 2 * self.delay, 0)
            answers.join()

    def _relay(self, source, sink, first_delay, direction):
        """Reads at once and writes each piece when its time has come. `first_delay` stands for the
        handshake that a real link would have had: it holds up what the client says first."""
        pieces, wake = collections.deque(), threading.Condition()
        opened = time.monotonic() + first_delay

        def write():
            while True:
                with wake:
                    while not pieces:
                        wake.wait()
                    due, data = pieces.popleft()
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data, socket.MSG_NOSIGNAL)  # An error, whatever SIGPIPE does.
                except OSError:
                    return

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        chance = self.chance and random.Random(self.chance.random())

        def deliver(piece):
            delay = self.delay * (chance.uniform(1, 3) if chance else 1)
            with wake:
                pieces.append((max(time.monotonic(), opened) + delay, piece))
                wake.notify()

        data = True
        while data:
            try:
                data = source.recv(chance.choice((40, 1500, 1 << 16, 1 << 18)) if chance else 1 << 18)
            except OSError:
                data = b""
            if self.wires:
                self.wires[direction].send(writer, data, deliver)
            else:
                deliver(data)
        writer.join()
