// Handlers: the handlers of every call, and the state that they share. A worker gives both to its
// executor.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/graph_hosts.h"
#include "server/handlers/graph_topology.h"
#include "server/handlers/host_gates.h"
#include "server/handlers/interprocess.h"
#include "server/handlers/links.h"
#include "server/handlers/module_state.h"
#include "server/handlers/textures.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/dispatch.h"

namespace gpurun::server {

class DeviceWindow;

inline constexpr int kHandlerDevicesMax = 64;

// Call::user() of every call. Made once per worker after the driver is initialized. Constant
// afterwards, except members that guard themselves.
class HandlerState {
 public:
  // `driver` is borrowed and outlives this. Takes the snapshot of the devices.
  static Result<std::unique_ptr<HandlerState>> create(const CudaDriver& driver);
  ~HandlerState();
  HandlerState(const HandlerState&) = delete;
  HandlerState& operator=(const HandlerState&) = delete;

  const CudaDriver& driver() const { return driver_; }
  const Dispatch& dispatch() const { return *dispatch_; }
  ByteView snapshot() const { return snapshot_; }
  ModuleState& modules() { return modules_; }
  LinkBook& links() { return links_; }
  HostGates& gates() { return gates_; }
  GraphHosts& graph_hosts() { return graph_hosts_; }
  GraphTopology& graph_topology() { return graph_topology_; }
  TextureBook& textures() { return textures_; }
  // The client's handle of a device's retained primary context. 0: not retained. `device` is at
  // least 0 and below kHandlerDevicesMax.
  std::atomic<std::uint64_t>& primary_context(int device) {
    return primary_contexts_[static_cast<std::size_t>(device)];
  }

  Interprocess& interprocess() { return interprocess_; }

  // The window of the driver's device with that number. nullptr: there is no such device.
  DeviceWindow* window(int device);

  static HandlerState& of(const Call& call) { return *static_cast<HandlerState*>(call.user()); }

 private:
  HandlerState(const CudaDriver& driver, std::unique_ptr<Dispatch> dispatch, Bytes snapshot);

  const CudaDriver& driver_;
  const std::unique_ptr<Dispatch> dispatch_;
  const Bytes snapshot_;
  std::array<std::atomic<std::uint64_t>, kHandlerDevicesMax> primary_contexts_{};
  ModuleState modules_;
  LinkBook links_{driver_};
  HostGates gates_;
  GraphHosts graph_hosts_;
  GraphTopology graph_topology_{driver_};
  Interprocess interprocess_{driver_};
  TextureBook textures_;
  std::vector<std::unique_ptr<DeviceWindow>> windows_;  // By device. Constant.
};

// For WorkerOptions::handlers. WorkerOptions::user must be a HandlerState.
Handlers make_handlers();

// Opcodes, ascending, of the rows that neither `driver` nor a handler can serve
// (protocol::Accept::unserved). The driver must be initialized.
std::vector<std::uint16_t> unserved_rows(const CudaDriver& driver, const Handlers& handlers);

// Registers `handler` for the row of that name. Does nothing if the table has no such row.
void set_handler(Handlers& handlers, const char* symbol, Handler handler);

}  // namespace gpurun::server
