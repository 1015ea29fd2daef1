// Process: this process's one session and what hangs on it. The interposer has no main(), so its
// state lives here; it is immortal, because CUDA's runtime still calls after exit handlers ran.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "client/attach.h"
#include "client/device_snapshot.h"
#include "client/session.h"
#include "protocol/device_memory.h"

namespace gpurun::client::interpose {

// Makes the connected, proved channels of a session and what the server said of its devices.
// kUnavailable: there is nowhere to connect to.
using Connector = Result<Attached> (*)();
// For tests; without it connect_from_environment() is asked. Before the first call.
void set_connector(Connector connector) noexcept;
// What GPURUN_SESSION says (client/session_data.h).
Result<Attached> connect_from_environment();

struct Process {
  Session* session = nullptr;
  const DeviceSnapshot* devices = nullptr;      // As the program sees them; from cuInit on.
  const DeviceSnapshot* all_devices = nullptr;  // Without CUDA_VISIBLE_DEVICES.
  Bytes snapshot;                               // What they are parsed from.
  std::string server;                           // "host:port", for messages and statistics.
  std::string server_release;                   // gpurun's version there.
  int driver_version = 0;                       // cuDriverGetVersion of its driver.
  unsigned attach_round_trips = 0;
  std::string transport;       // Attached::transport.
  std::uint64_t features = 0;  // Bits that both ends offer (protocol/features.h).
  // Given with the attach and nobody's yet (device_windows.h).
  std::optional<protocol::CreditGrant> first_credits;
};

// The connected process: attaches and takes the snapshot at the first call, which the calling
// thread waits for. 0, or the CUresult that every call returns: 100 nowhere to connect to, 46 the
// server cannot be reached (said once on stderr). A forked child attaches anew, whatever its parent
// has.
int connected(Process** process) noexcept;

// The process if this very process has connected, else nullptr. Never connects.
const Process* connected_already() noexcept;

// cuDriverGetVersion of the server's driver, of the last session that this process or an ancestor
// had; 0: there was none.
int last_driver_version() noexcept;

// True when the server does not know this call of ours: its table is older. Always false before
// this process has connected.
bool server_lacks(std::uint16_t opcode) noexcept;
// True when the server knows this call and its driver cannot serve it (protocol::Accept::unserved).
// Always false before this process has connected. Of an alias, the row that it stands for is asked.
bool driver_lacks(std::uint16_t opcode) noexcept;

// cuInit's part: the program may make calls from now on. The first one reads CUDA_VISIBLE_DEVICES,
// which a program may set after it has asked for the version or NVML. 0, or NO_DEVICE where the
// variable leaves none, which no later cuInit changes, or DEVICE_UNAVAILABLE where the session has
// been lost before.
int initialize(Process& process) noexcept;
// An ancestor had: CUDA does not work in such a child, however often it calls cuInit. What needs no
// cuInit (NVML, the version) does.
bool ancestor_initialized() noexcept;
// connected(), and 3 (NOT_INITIALIZED) before cuInit.
int ready(Process** process) noexcept;

}  // namespace gpurun::client::interpose
