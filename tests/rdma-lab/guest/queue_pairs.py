"""Queue pairs: destroys those of another process, as a device does that loses them.

The process's descriptors of RDMA devices are copied (pidfd_getfd(2)). The kernel checks the caller of
write(2) on such a descriptor, and not that of ioctl(2), which destroys objects. The forms are those of
<rdma/rdma_user_ioctl_cmds.h>, <rdma/ib_user_ioctl_cmds.h> and <rdma/ib_user_ioctl_verbs.h>.
"""
import ctypes
import fcntl
import os
import struct

PIDFD_GETFD = 438  # System call, the same number on all machines.
RDMA_VERBS_IOCTL = 0xC0181B01  # _IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)
OBJECT_QP, METHOD_QP_DESTROY = 4, 1
ATTR_HANDLE, ATTR_RESPONSE = 0, 1
MANDATORY = 1  # UVERBS_ATTR_F_MANDATORY
DRIVER_RXE = 14  # RDMA_DRIVER_RXE
RESPONSE_BYTES = 4  # struct ib_uverbs_destroy_qp_resp
# The kernel numbers the objects of a descriptor from 0, those of all kinds in one row.
HANDLES = range(256)


def copied(pid, descriptor):
    """A descriptor of this process for the file that the other process has."""
    process = os.pidfd_open(pid)
    try:
        number = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, descriptor, 0)
        if number < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        return number
    finally:
        os.close(process)


def devices(pid):
    """The process's descriptors of RDMA devices."""
    folder = f"/proc/{pid}/fd"
    return [int(name) for name in os.listdir(folder)
            if os.readlink(f"{folder}/{name}").startswith("/dev/infiniband/uverbs")]


def destroyed(device, handle):
    """Whether the handle was a queue pair, which is gone now."""
    response = ctypes.create_string_buffer(RESPONSE_BYTES)
    attributes = (struct.pack("<HHHHQ", ATTR_HANDLE, 0, MANDATORY, 0, handle)
                  + struct.pack("<HHHHQ", ATTR_RESPONSE, RESPONSE_BYTES, MANDATORY, 0, ctypes.addressof(response)))
    head_bytes = 24
    head = struct.pack("<HHHHQII", head_bytes + len(attributes), OBJECT_QP, METHOD_QP_DESTROY, 2, 0, DRIVER_RXE, 0)
    try:
        fcntl.ioctl(device, RDMA_VERBS_IOCTL, bytearray(head + attributes))
        return True
    except OSError:
        return False  # It is another object, or nothing.


def destroy(pid):
    """Destroys all queue pairs of the process. Returns their number."""
    count = 0
    for descriptor in devices(pid):
        device = copied(pid, descriptor)
        try:
            count += sum(destroyed(device, handle) for handle in HANDLES)
        finally:
            os.close(device)
    return count
