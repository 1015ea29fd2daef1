# The messages that come before the calls: how gpurun asks for GPUs, and how a process attaches.
# Each travels in a control frame (protocol/control/control.h).
@0xb1d9a4e06f3c7825;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("gpurun::protocol::wire");

struct ControlMessage {
  union {
    hello @0 :Hello;
    challenge @1 :Challenge;
    leaseRequest @2 :LeaseRequest;
    queued @3 :Queued;
    grant @4 :Grant;
    refused @5 :Refused;
    attach @6 :Attach;
    accept @7 :Accept;
    workerEnded @8 :WorkerEnded;
    listRequest @9 :ListRequest;
    listing @10 :Listing;
    tokenProof @11 :TokenProof;
    joined @12 :Joined;
  }
}

struct Version {
  protocol @0 :UInt32;
  # Both ends must say the same number.

  release @1 :Text;
  # gpurun's version, for messages.

  features @2 :Features;
}

struct Features {
  # Bits, as protocol/control/features.h numbers them.
  offered @0 :UInt64;
  required @1 :UInt64;
}

struct Hello {
  # gpurun to gpurund, first on a control link. Without a tag, because there is no key yet.
  version @0 :Version;
  nonce @1 :Data;
  token @2 :Data;
  # The id of the user token that proves this link. Empty: the server's own secret proves it.
}

struct TokenProof {
  # gpurun to gpurund after the challenge, without a tag, only when the hello named a token. The
  # request follows at once, tagged with the key that the token's secret gives. Inside TLS both come
  # right after the hello.
  masked @0 :Data;
  # protocol/auth/token.h
}

struct Challenge {
  # gpurund's answer to a hello, without a tag. Inside TLS the client does not wait for it.
  version @0 :Version;
  nonce @1 :Data;
  # Zeros inside TLS, where the channel's exporter replaces it (protocol/auth/proof.h).
}

struct LeaseRequest {
  devices @0 :UInt32;
  waitMilliseconds @1 :UInt64;
  host @2 :Text;
  # The client's machine, program and gpurun process, as the client claims, for listings. An older
  # client sends none.
  program @3 :Text;
  pid @4 :UInt32;
}

struct Queued {
  # Sent when the request gets its place, and again when that has changed.
  ahead @0 :UInt32;
  lacking @1 :UInt32;
  # GPUs that must become free for this request alone. 0: others come first, or an older server.
  gpus @2 :UInt32;
  # The server's GPUs. 0: an older server.
}

struct Grant {
  lease @0 :Data;
  ticket @1 :Data;
  challenge @2 :Data;
  devices @3 :UInt32;
  models @4 :List(Text);
  # What the GPUs are, each name once: for the user.
  emulated @5 :Bool;
  # They run PTX only (docs/man/gpurun-emulated.7.md): gpurun tells tool chains so.
  local @6 :Text;
  # A name, valid as long as gpurund runs, at which processes of its machine may attach by a local
  # socket, to share memory with their worker (transport/shm). Empty: they may not.
  reachedAt @7 :Text;
  # "host:port" of gpurund's end of this link. A client that connected to another address goes
  # through a forwarder, and must use it for all its connections.
}

struct Refused {
  # On any link, in place of the expected answer. The link ends.
  reason @0 :Text;
  forGood @1 :Bool;
  # The same request will never be granted: the version, the credential or the number of GPUs is
  # wrong. Waiting or asking again changes nothing. An older server does not set it.
}

struct Attach {
  # A client process to gpurund, first on each of its connections, tagged with the attach key.
  version @0 :Version;
  rows @1 :Data;
  # Digest of the rows of the client's table.
  lease @2 :Data;
  ticket @3 :Data;
  session @4 :Data;
  # Minted by the client. The same on all its connections, and never reused.
  nonce @5 :Data;
  index @6 :UInt16;
  # Which connection this is: 0 is the log, the others are bulk connections.
  count @7 :UInt16;
  # The number of connections with which the session begins. For a connection that joins later,
  # which both ends must offer (kLateBulk): its index plus one. An index is used once.
}

struct Joined {
  # The worker's answer on a connection that joins its session, tagged with the attach key. The
  # counter is the index. Frames follow.
  cores @0 :UInt32;
  # Processors that the worker may use.
}

struct Accept {
  # The worker's answer on the log connection, tagged with the attach key. Frames follow.
  release @0 :Text;
  driverVersion @1 :Int32;
  snapshot @2 :Data;
  # A Snapshot message (snapshot.capnp).

  rows @3 :List(RowHash);
  # Only when the client's digest differs from the worker's: the rows that the worker serves,
  # opcodes ascending (protocol/control/rows_agreement.h).

  features @4 :Features;

  credits @5 :Data;
  # Only when both ends offer kFirstCredits: a CreditGrant (protocol/calls/device_memory.h) of the
  # session's only device. Otherwise empty.

  unserved @6 :List(UInt16);
  # Opcodes, ascending, of the rows that the worker knows and its driver cannot serve. The client
  # refuses these calls itself, because a posted call would fail later. Older servers leave it
  # empty.
}

struct RowHash {
  opcode @0 :UInt16;
  hash @1 :UInt64;
}

struct WorkerEnded {
  # gpurund to gpurun while the lease lives: one of its workers ended abnormally.
  session @0 :Data;
  how @1 :Text;
  # "signal 11 (Segmentation fault)", "exit status 1".
}

struct ListRequest {
  # On a control link in place of a lease request. The listing is the answer, and the link ends.
}

struct Listing {
  release @0 :Text;
  waiting @1 :UInt32;
  # Requests in the queue.
  gpus @2 :List(Gpu);
  leases @3 :UInt32;
  # Active leases. Each has one ticket.
  gathering @4 :UInt32;
  # Sessions of which some connections have not come yet.
  workers @5 :UInt32;
  halfOpen @6 :UInt32;
  # Connections that have not proved anything yet.
  confinement @7 :Text;
  # The active confinement of workers: words with spaces between (docs/security.md).
  spareWorkers @8 :UInt32;
  # Workers that wait for a lease. 0 also from servers that have no such workers.
  now @9 :Int64;
  # The server's clock, in seconds since 1970. 0: an older server.
}

struct Gpu {
  name @0 :Text;
  memoryBytes @1 :UInt64;
  holder @2 :Text;
  # The client's end of the lease's link, "10.0.0.2:51234". Empty: the GPU is free.
  heldSeconds @3 :UInt64;
  workers @4 :UInt32;
  # Client processes of the lease that are attached.
  user @5 :Text;
  # The user of the token that leased it. "operator": leased by the server's own secret.
  host @6 :Text;
  program @7 :Text;
  pid @8 :UInt32;
  # As the client claimed in its request (LeaseRequest).
  since @9 :Int64;
  # Start of the lease, in seconds since 1970 by the server's clock. 0: an older server.
  sharing @10 :UInt32;
  # How many of the attached processes share memory with their worker.
  encrypted @11 :Bool;
  lease @12 :UInt32;
  # Numbers the leases of this listing from 1.
  usedKnown @13 :Bool;
  usedBytes @14 :UInt64;
  # Of the GPU's memory. Known for emulated devices only.
  overRdma @15 :UInt32;
  # How many of the attached processes use RDMA, which encrypts nothing.
  overRdmaAndTcp @16 :UInt32;
  # How many of these use TCP, too.
  rdmaPorts @17 :Text;
  # "mlx5_0:1 to mlx5_1:1": the server's port and the client's, with commas between several pairs.
  numaNodes @18 :Text;
  # On which the workers of the attached processes run: "1", "0,1". Empty: they run everywhere.
}
