// HandlerState: the state that handlers share. It owns an object of each area of the API, and this
// header does not include theirs. So an area includes the areas that it uses, and no others.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "server/driver/cuda_driver.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/dispatch.h"

namespace gpurun::server {

class DeviceWindow;
class DirectMemory;
class GraphHosts;
class GraphTopology;
class HostArena;
class HostGates;
class Interprocess;
class LinkRegistry;
class ManagedVariables;
class ModuleState;
class ShareableHandles;
class TextureRegistry;

inline constexpr int kHandlerDevicesMax = 64;

// Call::user() of every call. Made once per worker after the driver is initialized. Constant
// afterwards, except members that guard themselves. make_handler_state() makes it.
class HandlerState {
 public:
  // None is nullptr. A shared_ptr can end an object of a type that this header does not have.
  struct Objects {
    std::shared_ptr<ModuleState> modules;
    std::shared_ptr<LinkRegistry> links;
    std::shared_ptr<HostGates> gates;
    std::shared_ptr<HostArena> host_arena;
    std::shared_ptr<ManagedVariables> managed_variables;  // Uses host_arena.
    std::shared_ptr<GraphHosts> graph_hosts;
    std::shared_ptr<GraphTopology> graph_topology;
    std::shared_ptr<Interprocess> interprocess;
    std::shared_ptr<ShareableHandles> shareable_handles;
    std::shared_ptr<TextureRegistry> textures;
    std::shared_ptr<DirectMemory> direct_memory;
    std::vector<std::shared_ptr<DeviceWindow>> windows;  // By device. They use direct_memory.
  };

  // `driver` is borrowed and outlives this. `snapshot` describes its devices.
  HandlerState(const CudaDriver& driver, std::unique_ptr<Dispatch> dispatch, Bytes snapshot,
               Objects objects);
  ~HandlerState();
  HandlerState(const HandlerState&) = delete;
  HandlerState& operator=(const HandlerState&) = delete;

  const CudaDriver& driver() const { return driver_; }
  const Dispatch& dispatch() const { return *dispatch_; }
  ByteView snapshot() const { return snapshot_; }
  ModuleState& modules() { return *objects_.modules; }
  LinkRegistry& links() { return *objects_.links; }
  HostGates& gates() { return *objects_.gates; }
  HostArena& host_arena() { return *objects_.host_arena; }
  DirectMemory& direct_memory() { return *objects_.direct_memory; }
  ManagedVariables& managed_variables() { return *objects_.managed_variables; }
  GraphHosts& graph_hosts() { return *objects_.graph_hosts; }
  GraphTopology& graph_topology() { return *objects_.graph_topology; }
  TextureRegistry& textures() { return *objects_.textures; }
  // The client's handle of a device's retained primary context. 0: not retained. `device` is at
  // least 0 and below kHandlerDevicesMax.
  std::atomic<std::uint64_t>& primary_context(int device) {
    return primary_contexts_[static_cast<std::size_t>(device)];
  }

  Interprocess& interprocess() { return *objects_.interprocess; }
  ShareableHandles& shareable_handles() { return *objects_.shareable_handles; }

  // The window of the driver's device with that number. nullptr: there is no such device.
  DeviceWindow* window(int device);

  static HandlerState& of(const Call& call) { return *static_cast<HandlerState*>(call.user()); }

 private:
  const CudaDriver& driver_;
  const std::unique_ptr<Dispatch> dispatch_;
  const Bytes snapshot_;
  std::array<std::atomic<std::uint64_t>, kHandlerDevicesMax> primary_contexts_{};
  const Objects objects_;
};

// Registers `handler` for the row of that name. Does nothing if the table has no such row.
void set_handler(Handlers& handlers, const char* symbol, Handler handler);

}  // namespace gpurun::server
