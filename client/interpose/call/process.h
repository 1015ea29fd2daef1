// Process: this process's one session and its state. The interposer has no main(), so its state
// lives here. It is immortal, because CUDA's runtime still calls after exit handlers ran.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/attach/attach.h"
#include "client/devices/device_snapshot.h"
#include "client/session/session.h"
#include "protocol/calls/device_memory.h"
#include "transport/rejected.h"

namespace gpurun::client::interpose {

// Makes the connected, authenticated channels of a session, and the server's description of its
// devices. kUnavailable: there is no server to connect to.
using Connector = Result<Attached> (*)();
// For tests. Without it, connect_from_environment() is used. Call it before the first call.
void set_connector(Connector connector) noexcept;
// Uses the value of GPURUN_SESSION (client/attach/session_data.h).
Result<Attached> connect_from_environment();

struct Process {
  Session* session = nullptr;
  const DeviceSnapshot* devices = nullptr;      // As the program sees them. Set from cuInit on.
  const DeviceSnapshot* all_devices = nullptr;  // Without CUDA_VISIBLE_DEVICES.
  Bytes snapshot;                               // The bytes that the devices are parsed from.
  std::string server;                           // "host:port", for messages and statistics.
  std::string server_release;                   // The version of gpurun on the server.
  int driver_version = 0;                       // The server's cuDriverGetVersion.
  unsigned attach_round_trips = 0;
  std::string transport;                      // Attached::transport.
  std::string socket_transport;               // Attached::socket_transport.
  std::vector<transport::Rejected> rejected;  // Attached::rejected.
  std::uint64_t features = 0;  // Bits that both ends offer (protocol/control/features.h).
  // Granted with the attach and not adopted yet (device_windows.h).
  std::optional<protocol::CreditGrant> first_credits;
};

// The connected process. The first call attaches and takes the snapshot, and the calling thread
// waits for it. Returns 0, or the CUresult that every call returns. 100: there is no server to
// connect to. 46: the server cannot be reached. The failure is logged once on stderr. A forked
// child attaches anew, whatever its parent has.
int connected(Process** process) noexcept;

// The process if this process itself has connected, otherwise nullptr. Never connects.
const Process* connected_already() noexcept;

// cuDriverGetVersion of the server's driver in the last session of this process or an ancestor. 0:
// there was no session.
int last_driver_version() noexcept;

// True when the server's table is older and lacks this call. Always false before this process has
// connected.
bool server_lacks(std::uint16_t opcode) noexcept;
// True when the server knows this call but its driver cannot serve it (protocol::Accept::unserved).
// Always false before this process has connected. For an alias, pass the opcode of the function
// that it stands for.
bool driver_lacks(std::uint16_t opcode) noexcept;

// The local part of cuInit: the program may make calls from now on. The first call reads
// CUDA_VISIBLE_DEVICES, which a program may set after it has asked for the version or NVML. Returns
// 0, or NO_DEVICE if the variable leaves none, which no later cuInit changes. Returns
// DEVICE_UNAVAILABLE if the session was lost before.
int initialize(Process& process) noexcept;
// True: an ancestor called cuInit. CUDA does not work in such a child, however often it calls
// cuInit. Calls that need no cuInit (NVML, the version) work.
bool ancestor_initialized() noexcept;
// As connected(), but returns 3 (NOT_INITIALIZED) before cuInit.
int ready(Process** process) noexcept;

}  // namespace gpurun::client::interpose
