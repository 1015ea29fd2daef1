"""Links whose bytes take their time."""
import collections
import socket
import threading
import time


class DelayedLink:
    """A TCP relay that keeps each byte half of `round_trip_s` in either direction."""

    def __init__(self, port, round_trip_s):
        self.target, self.delay = ("127.0.0.1", port), round_trip_s / 2
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near):
        # A connection costs a round trip before its first byte: connect() to us costs none.
        far = socket.create_connection(self.target)
        for connection in (near, far):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with near, far:
            answers = threading.Thread(target=self._relay, args=(far, near, 0), daemon=True)
            answers.start()
            self._relay(near, far, 2 * self.delay)
            answers.join()

    def _relay(self, source, sink, first_delay):
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
        data = True
        while data:
            try:
                data = source.recv(1 << 18)
            except OSError:
                data = b""
            with wake:
                pieces.append((max(time.monotonic(), opened) + self.delay, data))
                wake.notify()
        writer.join()
