# What a launch's record says (protocol/log/record.h: RecordHeader, LaunchPayload), as a message of
# Cap'n Proto: for the bench alone, which compares both (docs/adr/0007).
@0xa1f4c0de6b2d9e57;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("gpurun::bench::wire");

struct Launch {
  opcode @0 :UInt16;
  order @1 :UInt8;
  flags @2 :UInt16;
  lane @3 :UInt32;
  sequence @4 :UInt64;
  context @5 :UInt64;
  stream @6 :UInt64;
  function @7 :UInt64;
  gridX @8 :UInt32;
  gridY @9 :UInt32;
  gridZ @10 :UInt32;
  blockX @11 :UInt32;
  blockY @12 :UInt32;
  blockZ @13 :UInt32;
  sharedBytes @14 :UInt32;
  layoutHash @15 :UInt64;
  parameters @16 :Data;
}
