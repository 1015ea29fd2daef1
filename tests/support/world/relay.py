"""Relay between a client and a server, which sees, keeps and changes the traffic."""
import socket
import threading

from .between import Between


class Relay(Between):
    """Connections are numbered from 0. `change(number, from_client, offset, data)` returns the
    bytes to pass on. `heard[number]` holds the client's bytes, and `told[number]` the server's. A
    client that ended may have sent bytes that are not in `heard` until `quiet()`."""

    def __init__(self, port, change=None):
        self.change = change or (lambda *words: words[-1])
        self.heard, self.told, self.ended = [], [], []
        super().__init__(port)

    def _arrived(self):
        self.heard.append(b"")
        self.told.append(b"")
        return (len(self.heard) - 1,)

    def quiet(self):
        """Whether the client's side of each connection has ended."""
        return len(self.ended) == len(self.heard)

    def _serve(self, near, number):
        try:
            far = socket.create_connection(self.target)
        except OSError:
            near.close()
            self.ended.append(number)
            return
        with near, far:
            back = threading.Thread(target=self._pass_on, args=(far, near, number, False), daemon=True)
            back.start()
            self._pass_on(near, far, number, True)
            self.ended.append(number)
            back.join()

    def _pass_on(self, source, sink, number, from_client):
        kept = self.heard if from_client else self.told
        while True:
            try:
                data = source.recv(1 << 16)
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                data = self.change(number, from_client, len(kept[number]), data)
                kept[number] += data
                sink.sendall(data)
            except OSError:
                for end in (source, sink):
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
                return
