# The envelope of a generated row's call and of its reply, for the less frequent calls of the table.
# The row (driver_abi/row.h) gives the meaning of each word and blob. Both ends have the same row,
# because the handshake compares a hash per row. protocol/calls/call.h packs and unpacks.
@0xbd1f0a2f2bd1c9a7;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("gpurun::protocol::wire");

struct Call {
  # One word for each parameter of the row, in order:
  #   scalar          its bytes, zero-extended
  #   handle          the client's value of it
  #   struct, string  1 (a NULL string: 0); the bytes are in `blobs`
  #   pointer         0 for NULL; else 1, except that
  #   pointer to a handle that comes out: the value which the client minted for it.
  words @0 :List(UInt64);

  # In parameter order: the bytes of each by-value struct, of each string (NUL included), and of
  # what each pointer that goes in, or in and out, points to. Handles in there are the client's. An
  # array of graph nodes that comes out goes in too. It has one freshly minted handle in each place,
  # for nodes that have no handle yet because a capture or a clone made them.
  blobs @1 :List(Data);
}

struct Reply {
  # What the driver returned (a CUresult).
  result @0 :Int32;

  # In parameter order: the target of each pointer that comes out, or goes in and out, and was not
  # NULL. Empty when the driver failed, because outputs are set only on success. A string buffer's
  # blob ends with its NUL. Handles are the client's.
  blobs @1 :List(Data);
}
