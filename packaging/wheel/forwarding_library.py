"""Forwarding library: an ELF library that only loads another one beside it.

A program may open libcuda.so where another opens libcuda.so.1. Both names must lead to one library in a
process. Elsewhere the first is a link, and a wheel has no links. A copy would be a second client in
one process. dlsym() on the forwarding library finds the functions of the library that it needs.
"""
import struct

PAGE = 0x1000
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_SONAME, DT_RUNPATH = 1, 5, 6, 10, 11, 14, 29
DT_HASH = 4


def forwarding_library(name, target, like):
    """The bytes of the library `name`, which needs the library `target`. `like` is a file of the same
    processor."""
    with open(like, "rb") as file:
        head = file.read(64)
    if head[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{like} is no library of 64 bits, least significant byte first")
    machine, flags = struct.unpack_from("<H", head, 18)[0], struct.unpack_from("<I", head, 48)[0]
    strings = b"\0" + b"\0".join(word.encode() for word in (name, target, "$ORIGIN")) + b"\0"
    at = {word: strings.index(b"\0" + word.encode() + b"\0") + 1 for word in (name, target, "$ORIGIN")}
    headers = 64 + 4 * 56
    symbols = (headers + 7) // 8 * 8            # One empty symbol.
    hashes = symbols + 24                       # One bucket, one chain, and no name.
    text = hashes + 16
    dynamic = PAGE                              # A page of its own, which the loader may write.
    entries = [(DT_NEEDED, at[target]), (DT_SONAME, at[name]), (DT_RUNPATH, at["$ORIGIN"]), (DT_HASH, hashes),
               (DT_STRTAB, text), (DT_SYMTAB, symbols), (DT_STRSZ, len(strings)), (DT_SYMENT, 24), (0, 0)]
    dynamic_bytes = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    read_only = bytearray(text + len(strings))
    struct.pack_into("<16sHHIQQQIHHHHHH", read_only, 0, head[:16], 3, machine, 1, 0, 64, 0, flags, 64, 56, 4, 64, 0, 0)
    align = 0x10000                             # The largest page of any processor here.

    def segment(kind, access, offset, address, size, alignment):
        return struct.pack("<IIQQQQQQ", kind, access, offset, address, address, size, size, alignment)

    place = dynamic + align                     # Its offset and address agree within a page.
    read_only[64:headers] = (segment(1, 4, 0, 0, len(read_only), align)
                             + segment(1, 6, dynamic, place, len(dynamic_bytes), align)
                             + segment(2, 6, dynamic, place, len(dynamic_bytes), 8)
                             + segment(0x6474e551, 6, 0, 0, 0, 16))  # The stack is not executable.
    struct.pack_into("<IIII", read_only, hashes, 1, 1, 0, 0)
    read_only[text:] = strings
    return bytes(read_only).ljust(dynamic, b"\0") + dynamic_bytes
