# The client's knowledge of the session's devices, sent once: the reply to cuInit. The client
# answers every query of a device from it.
@0xe6d0c3a7c1b85e21;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("gpurun::protocol::wire");

struct Snapshot {
  driverVersion @0 :Int32;
  # As cuDriverGetVersion on the server returns it.

  devices @1 :List(Device);
  # In the order of the server's driver; at most 64.

  emulated @2 :Bool;
  # The driver is gpurun's emulated device.

  peers @3 :List(Peer);
  # For each ordered pair of different devices.

  driverRelease @4 :Text;
  # The driver's own version, "580.95.05", as NVML reports it. Empty: unknown.
}

struct Device {
  name @0 :Text;
  uuid @1 :Data;
  # 16 bytes, of cuDeviceGetUuid. uuidV2 is the same for cuDeviceGetUuid_v2. They differ under MIG.
  uuidV2 @2 :Data;
  totalMemoryBytes @3 :UInt64;
  pciBusId @4 :Text;
  # As cuDeviceGetPCIBusId.

  attributes @5 :List(Attribute);
  # Those that the driver answered, unmasked. The client knows which of them hold over a wire.

  libraryCapability @6 :Int32;
  # Compute capability, major * 10 + minor, to report to NVIDIA's math libraries. 0: the same as to
  # every caller.
}

struct Attribute {
  id @0 :Int32;
  value @1 :Int32;
}

struct Peer {
  device @0 :Int32;
  other @1 :Int32;
  canAccess @2 :Bool;
  attributes @3 :List(Attribute);
  # CUdevice_P2PAttribute.

  topology @4 :UInt8;
  # How far the two are apart on the server, as nvmlGpuTopologyLevel_t, plus 1. 0: unknown.
}
