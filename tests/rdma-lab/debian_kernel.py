#!/usr/bin/env python3
"""Debian's kernel for the guests of the laboratory: fetches the package once and keeps what a guest needs.

usage: debian_kernel.py BUILD

The folder BUILD/rdma-lab/kernel then has the kernel's image and its modules. Nothing is installed. Ends with
77 and a reason where a program of the laboratory is missing, or where the package cannot be fetched.
"""
import glob
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../programs"))
import fetching  # noqa: E402
import needs  # noqa: E402

PACKAGE = "linux-image-amd64"  # It depends on the package with the newest kernel.
# Modules of a guest. The file `order` has them behind those that they depend on. The kernel would load
# crc32_generic for rdma_rxe by modprobe, which a guest has not.
MODULES = ("crc32_generic", "virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "veth", "sch_netem",
           "sch_ingress", "cls_u32", "act_pedit", "rdma_rxe", "rdma_ucm", "ib_uverbs")
XZ = b"\xfd7zXZ\0"


def folder(build):
    return os.path.join(os.path.abspath(build), "rdma-lab/kernel")


def elf_image(image):
    """The ELF kernel within a bzImage, or None where it has another compression. QEMU boots it by PVH, and
    the guest is spared the time to unpack it."""
    setup_sectors = (image[0x1f1] or 4) + 1  # Offsets: the kernel's Documentation/arch/x86/boot.rst.
    offset, length = struct.unpack_from("<II", image, 0x248)
    begin = setup_sectors * 512 + offset
    payload = image[begin:begin + length]
    return lzma.LZMADecompressor().decompress(payload) if payload.startswith(XZ) else None


def module_files(tree):
    """Returns name -> path of all modules."""
    found = {}
    for path in glob.glob(os.path.join(tree, "**/*.ko*"), recursive=True):
        name, _, rest = os.path.basename(path).partition(".ko")
        if rest in ("", ".xz"):
            found[name.replace("-", "_")] = path
    return found


def module_bytes(path):
    with open(path, "rb") as file:
        data = file.read()
    return lzma.decompress(data) if path.endswith(".xz") else data


def dependencies(module):
    said = re.search(rb"\0depends=([\w,-]*)\0", module)
    return [name.replace("-", "_") for name in said[1].decode().split(",") if name] if said else []


def in_loading_order(names, read):
    """`names` with all modules that they need, each behind those. `read` returns a module's bytes."""
    order = []

    def add(name):
        if name not in order:
            for needed in dependencies(read(name)):
                add(needed)
            order.append(name)

    for name in names:
        add(name)
    return order


def unpack(tree, into):
    """Takes the image and the modules out of the package's files."""
    with open(glob.glob(os.path.join(tree, "boot/vmlinuz-*"))[0], "rb") as file:
        image = file.read()
    files = module_files(os.path.join(tree, "lib/modules"))
    order = in_loading_order(MODULES, lambda name: module_bytes(files[name]))
    for name in order:
        with open(os.path.join(into, name + ".ko"), "wb") as file:
            file.write(module_bytes(files[name]))
    with open(os.path.join(into, "order"), "w", encoding="utf-8") as file:
        file.write("".join(name + ".ko\n" for name in order))
    with open(os.path.join(into, "image"), "wb") as file:
        file.write(elf_image(image) or image)


def newest():
    """The name of the package that PACKAGE depends on, or None."""
    done = subprocess.run(["apt-cache", "depends", PACKAGE], capture_output=True, text=True)
    found = re.search(r"Depends: (linux-image-\S+)", done.stdout)
    return found[1] if found else None


def fetch(build):
    target = folder(build)
    if os.path.exists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(target), prefix="kernel-") as place:
        name = newest()
        if name is None:
            fetching.skip(f"{PACKAGE} (Debian)", "apt does not know it")
        fetching.fetch(f"{name} (Debian)", ["apt-get", *fetching.APT, "download", name], cwd=place)
        archive, = glob.glob(os.path.join(place, "*.deb"))
        tree, kept = os.path.join(place, "tree"), os.path.join(place, "kept")
        subprocess.run(["dpkg-deb", "-x", archive, tree], check=True)
        os.mkdir(kept)
        unpack(tree, kept)
        shutil.move(kept, target)  # Complete, or absent.


def main():
    missing = needs.missing_programs()
    if missing:
        print(f"skipped: the laboratory needs {missing}")
        sys.exit(fetching.SKIPPED)
    fetch(sys.argv[1])


if __name__ == "__main__":
    main()
