"""Between: a process between a client and a server. It listens, and serves each connection on a
thread."""
import socket
import threading


class Between:
    """`with` ends its listening. Calls `_serve(near, *more)` for each connection. `more` is the
    result of `_arrived()`, which is called in the order in which connections come."""

    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def _arrived(self):
        return ()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near, *self._arrived()), daemon=True).start()

    def _serve(self, near, *more):
        raise NotImplementedError
