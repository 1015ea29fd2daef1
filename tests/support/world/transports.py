"""Transports: the options for the sessions with a server at both ends, and the transport in their
statistics."""
import collections

# `words`: options of gpurund and of gpurun. `variables`: the program's environment. The last field
# is the beginning of the session's line in --stats.
Transport = collections.namedtuple("Transport", "words variables said")
TRANSPORTS = {
    # No options: the transport that sessions choose by default.
    "shm": Transport((), {}, "shared memory, not encrypted"),
    "tcp": Transport((), {"GPURUN_TRANSPORTS": "tcp"}, "TCP, not encrypted"),
    # The server needs --fabric, too.
    "rdma": Transport((), {"GPURUN_TRANSPORTS": "rdma,tcp", "GPURUN_TRUST_FABRIC": "*"}, "RDMA by "),
    "tls": Transport(("--tls",), {}, "TCP, encrypted by TLS"),
}
ANY = Transport((), {}, "")


def check(transport, statistics):
    """Checks that each session of a run used that transport."""
    if transport is ANY:
        return
    over = [each["transport"] for each in statistics]
    if not over or not all(said.startswith(transport.said) for said in over):
        raise AssertionError(f"over {over or 'nothing that anybody knows of'}, not over {transport.said}")
