// DeviceWindows: the worker's book of device memory that the client cuts up by itself
// (docs/adr/0005): the window of each device, and the pieces of it that have memory. All addresses
// are chosen here or by the driver; what the client names is looked up and never taken on trust.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "protocol/device_memory.h"
#include "server/driver/cuda_driver.h"
#include "server/worker/call.h"

namespace gpurun::server {

// One device. Any thread; no lock is held while memory is given back, which may wait for the
// device.
class DeviceWindow {
 public:
  // `driver` is borrowed and outlives this. Nothing of the driver is called yet.
  DeviceWindow(const CudaDriver& driver, int device) : driver_(driver), device_(device) {}
  DeviceWindow(const DeviceWindow&) = delete;
  DeviceWindow& operator=(const DeviceWindow&) = delete;

  // Memory for one allocation: a piece, or the driver's own where there is no window, no room in it
  // or not a whole piece left. A context of the device is current. INVALID_VALUE for what is over a
  // bound, else the CUresult of the driver; `*grant` tells of the window in any case.
  int grant(const protocol::CreditRequest& request, protocol::CreditGrant* grant);
  // Takes the memory of the piece at `piece`. INVALID_VALUE: there is none.
  int take_back(std::uint64_t piece);
  // Takes all, and the addresses. There is no window from now on.
  int close();

  // Of all pieces, for tests.
  std::uint64_t committed_bytes() const;

 private:
  enum class State : std::uint8_t { kUnknown, kOpen, kNone };
  struct Piece {
    std::uint64_t bytes = 0;
    CUmemGenericAllocationHandle memory = 0;
    bool leaving = false;  // Its memory is being taken; the addresses are not free yet.
  };

  // All under mutex_.
  void open(const protocol::CreditRequest& request);
  int place(const protocol::CreditRequest& request, protocol::CreditGrant* grant);
  int place_at(std::uint64_t at, std::uint64_t bytes, protocol::CreditGrant* grant);
  int map(std::uint64_t at, std::uint64_t bytes, Piece* piece);
  std::uint64_t find_gap(std::uint64_t bytes) const;
  std::uint64_t gap_at(std::uint64_t at) const;
  std::uint64_t generous(std::uint64_t least) const;
  CUmemAllocationProp properties() const;

  int unmap(std::uint64_t at, const Piece& piece) const;

  const CudaDriver& driver_;
  const int device_;
  mutable std::mutex mutex_;  // Guards all below.
  State state_ = State::kUnknown;
  std::uint64_t base_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t granule_ = 0;
  std::uint64_t next_credit_ = 0;
  std::map<std::uint64_t, Piece> pieces_;
  std::vector<CUmemAccessDesc> access_;
};

// cuMemAlloc_v2 and cuMemFree_v2: form raw here, others as the row says.
void add_device_window_handlers(Handlers& handlers);

}  // namespace gpurun::server
