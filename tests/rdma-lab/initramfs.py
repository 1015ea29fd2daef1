"""Initramfs: the first file system of a guest, with busybox, the kernel's modules and guest/init.

The archive has the form "newc" (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst). It
is written here, because a folder of these files would need root for its owners.
"""
import os
import shutil
import stat

HERE = os.path.dirname(os.path.abspath(__file__))
DIRECTORY, FILE, LINK = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755, stat.S_IFLNK | 0o777
TRAILER = "TRAILER!!!"


class Archive:
    def __init__(self):
        self.parts, self.names = [], set()

    def put(self, name, data, mode=FILE):
        """Adds a file with the folders that it is in."""
        above = os.path.dirname(name)
        if above and above not in self.names:
            self.put(above, b"", DIRECTORY)
        self.names.add(name)
        path = name.encode() + b"\0"
        # Inode, mode, user, group, links, time, size, two devices of two numbers, length of the name, no
        # check.
        fields = (len(self.names), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + "".join(f"{field:08x}" for field in fields).encode() + path
        self.parts += [padded(head), padded(data)]

    def bytes(self):
        self.put(TRAILER, b"", 0)
        return b"".join(self.parts)


def padded(data):
    return data + b"\0" * (-len(data) % 4)


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def write(kernel, path):
    """Writes the archive to `path`, with the modules of the folder `kernel` (debian_kernel.py)."""
    archive = Archive()
    archive.put("init", contents(os.path.join(HERE, "guest/init")))
    archive.put("bin/busybox", contents(shutil.which("busybox")))
    archive.put("bin/sh", b"busybox", LINK)
    archive.put("modules/order", contents(os.path.join(kernel, "order")))
    for name in contents(os.path.join(kernel, "order")).decode().split():
        archive.put("modules/" + name, contents(os.path.join(kernel, name)))
    with open(path, "wb") as file:
        file.write(archive.bytes())
