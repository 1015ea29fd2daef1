"""Crossing: counts the bytes of TCP or of RoCE that cross an interface, by a socket that sees its packets
(packet(7)). The interface's own counters have both, and those of RDMA devices include what a device sends to
itself."""
import ctypes
import socket
import struct

TCP, ROCE = socket.IPPROTO_TCP, socket.IPPROTO_UDP  # A guest sends nothing else by UDP.
ALL_PROTOCOLS = 3  # ETH_P_ALL. Otherwise the socket sees no packet that goes out.
ATTACH_FILTER, RECEIVE_BUFFER_FORCE = 26, 33  # SO_ATTACH_FILTER, SO_RCVBUFFORCE
PACKET, STATISTICS = 263, 6  # SOL_PACKET, PACKET_STATISTICS
BUFFER_BYTES = 64 << 20
KEPT = 64  # Bytes of a packet, enough for its head.


def packets_of(protocol):
    """Instructions of a socket filter (bpf(2)) for packets that begin with their head of IPv4. They load the
    protocol of Ethernet and that of IP, and keep the packet where both are equal to the wanted ones."""
    code = ((0x28, 0, 0, 0xFFFFF000), (0x15, 0, 3, 0x0800), (0x30, 0, 0, 9), (0x15, 0, 1, protocol),
            (0x06, 0, 0, KEPT), (0x06, 0, 0, 0))
    return len(code), b"".join(struct.pack("<HBBI", *one) for one in code)


class Crossing:
    """Both directions count, with heads of IP. The end of `with` ends the count."""

    def __init__(self, protocol, interface="va"):
        self.bytes = 0
        instructions, code = packets_of(protocol)
        self.code = ctypes.create_string_buffer(code, len(code))
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER,
                               struct.pack("HL", instructions, ctypes.addressof(self.code)))
        self.socket.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER_FORCE, BUFFER_BYTES)
        self.socket.bind((interface, ALL_PROTOCOLS))
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def so_far(self):
        """Bytes since the begin. Raises OverflowError where packets were lost, so that the count is wrong."""
        try:
            while True:
                head = self.socket.recv(KEPT)
                self.bytes += struct.unpack_from(">H", head, 2)[0]  # Total length (RFC 791, 3.1).
        except BlockingIOError:
            pass
        _, lost = struct.unpack("II", self.socket.getsockopt(PACKET, STATISTICS, 8))
        if lost:
            raise OverflowError(f"{lost} packets were not counted")
        return self.bytes
