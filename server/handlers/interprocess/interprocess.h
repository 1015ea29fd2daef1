// Interprocess: device memory and events that this worker shares with others of its lease
// (docs/adr/0018).
//
// Memory of windows goes as descriptors of its pieces. Memory that the driver has allocated itself,
// and events, go by the driver's own handles. The client only sees handles that the daemon made.
// Without a daemon the driver's handles are passed on unchanged.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "protocol/calls/interprocess.h"
#include "server/driver/cuda_driver.h"
#include "server/exchange/exchange_client.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

class DeviceWindow;
class HandlerState;
struct SharedFacts;

// Any thread. A request to the daemon blocks for its answer.
class Interprocess {
 public:
  // `driver` is borrowed and outlives this.
  explicit Interprocess(const CudaDriver& driver);
  ~Interprocess();
  Interprocess(const Interprocess&) = delete;
  Interprocess& operator=(const Interprocess&) = delete;

  // Before the first call.
  void set_exchange(std::shared_ptr<ExchangeClient> exchange) { exchange_ = std::move(exchange); }

  // These return CUresults. `window` is that of the request's device. A context of the memory is
  // current.
  int share(const protocol::ShareRequest& request, DeviceWindow& window,
            protocol::SharingHandle* handle);
  void withdraw(std::uint64_t address);
  // `context` is the client's handle of the current context, and `device` is its device.
  int open(HandlerState& state, const protocol::OpenRequest& request, std::uint64_t context,
           int device, protocol::OpenGrant* grant);
  int close(HandlerState& state, const protocol::CloseRequest& request,
            protocol::CloseReply* reply);

  int share_event(CUevent event, CUipcEventHandle* handle);
  int destroy_event(CUevent event);
  int open_event(const CUipcEventHandle& handle, CUevent* event);

  // The function that replaces the driver's (Dispatch::substitute()). nullptr: there is no
  // replacement.
  static void* substitute(std::uint16_t opcode);
  // The object of this worker. nullptr: not created.
  static Interprocess* current() { return current_.load(); }

 private:
  struct Export {
    std::uint64_t bytes = 0;
    protocol::SharingHandle handle{};
  };
  struct Opening {
    protocol::OpenGrant grant;
    bool in_window = false;   // In a window. Otherwise by the driver's own handle.
    std::uint64_t start = 0;  // The start of its pieces.
    std::uint32_t count = 0;
  };

  int put(SharedFacts& facts, const std::vector<int>& files, protocol::SharingHandle* handle);
  int open_new(HandlerState& state, const protocol::OpenRequest& request, int device,
               Opening* opening);
  int open_by_driver(const void* driver_handle, unsigned flags, protocol::OpenGrant* grant) const;
  int device_of(const std::uint8_t* uuid) const;
  bool is_own(const protocol::SharingHandle& handle) const;

  static std::atomic<Interprocess*> current_;

  const CudaDriver& driver_;
  std::shared_ptr<ExchangeClient> exchange_;
  mutable std::mutex mutex_;                 // Guards all below.
  std::map<std::uint64_t, Export> exports_;  // By address.
  std::map<CUevent, protocol::SharingHandle> events_;
  // By handle and by the client's context.
  std::map<std::pair<protocol::SharingHandle, std::uint64_t>, Opening> openings_;
};

// cuIpcGetMemHandle, cuIpcOpenMemHandle_v2 and cuIpcCloseMemHandle in form raw.
void add_interprocess_handlers(Handlers& handlers);

}  // namespace gpurun::server
