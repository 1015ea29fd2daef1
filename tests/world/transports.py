"""What the sessions with a server go over: how both ends are told, and how their statistics show it."""
import collections

# `words` of gpurund and of gpurun, `variables` of the program's environment, and how what --stats says of a
# session begins.
Transport = collections.namedtuple("Transport", "words variables said")
TRANSPORTS = {
    # Nobody is told: it is what they take by themselves.
    "shm": Transport((), {}, "shared memory, not encrypted"),
    "tcp": Transport((), {"GPURUN_TRANSPORTS": "tcp"}, "TCP, not encrypted"),
    "tls": Transport(("--tls",), {}, "TCP, encrypted by TLS"),
}
ANY = Transport((), {}, "")


def check(transport, statistics):
    """Of a run that had sessions: each went over that."""
    if transport is ANY:
        return
    over = [each["transport"] for each in statistics]
    if not over or not all(said.startswith(transport.said) for said in over):
        raise AssertionError(f"over {over or 'nothing that anybody knows of'}, not over {transport.said}")
