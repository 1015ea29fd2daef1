// DeviceWindows: the device memory that the client allocates from by itself (docs/adr/0005). The
// worker keeps the window of each device and the pieces of it that have memory.
//
// All addresses are chosen here or by the driver. Addresses from the client are looked up and never
// trusted.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "protocol/calls/device_memory.h"
#include "server/driver/cuda_driver.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

class DirectMemory;

// One device. Any thread. Giving memory back may wait for the device. take_back() releases the lock
// meanwhile, once the first request has come.
class DeviceWindow {
 public:
  // Both are borrowed and outlive this. The constructor does not call the driver. `direct` learns
  // of each piece of its own memory. nullptr: RDMA devices get none.
  DeviceWindow(const CudaDriver& driver, int device, DirectMemory* direct = nullptr)
      : driver_(driver), device_(device), direct_(direct) {}
  DeviceWindow(const DeviceWindow&) = delete;
  DeviceWindow& operator=(const DeviceWindow&) = delete;

  // Memory for one allocation: a piece of the window. The driver's own allocation serves where
  // there is no window, no room in it, or not enough memory for a piece. A context of the device is
  // current. INVALID_VALUE for a request over a bound, else the driver's CUresult. `*grant` names
  // the window whenever one is open.
  int grant(const protocol::CreditRequest& request, protocol::CreditGrant* grant);
  // For use before any request: a window and a little memory, which needs no context. False: there
  // is no such window, and the client's first request decides.
  bool grant_first(protocol::CreditGrant* grant);
  // Takes the memory of the piece at `piece`. INVALID_VALUE: there is no such piece. It succeeds
  // for a piece that an overtaking request has already removed.
  int take_back(std::uint64_t piece);
  // Takes all pieces and the addresses. There is no window from now on.
  int close();

  // Whether the address is in the window, with or without memory.
  bool reaches(std::uint64_t address) const;
  // A piece of memory that goes from one worker to another.
  struct SharedPiece {
    UniqueFd memory;  // From cuMemExportToShareableHandle.
    std::uint64_t bytes = 0;
  };
  // The pieces that contain [address, address + bytes), in order, and the offset in the first one.
  // INVALID_VALUE: there are no such pieces, or they are another process's. Else the driver's
  // CUresult.
  int share(std::uint64_t address, std::uint64_t bytes, std::vector<SharedPiece>* pieces,
            std::uint64_t* offset) const;
  // Maps another worker's pieces next to each other. They go into the window if there is one, which
  // `request` opens if needed, else to any addresses of the driver. `*grant` is as from grant().
  // `*at` is their first address.
  int adopt(const protocol::CreditRequest& request, const std::vector<SharedPiece>& pieces,
            protocol::CreditGrant* grant, std::uint64_t* at);
  // Unmaps the pieces that adopt() placed at `at`. INVALID_VALUE: there are none there.
  int release(std::uint64_t at);

  // Of all pieces of its own memory, for tests.
  std::uint64_t committed_bytes() const;

 private:
  enum class State : std::uint8_t { kUnknown, kOpen, kNone };
  struct Piece {
    std::uint64_t bytes = 0;
    CUmemGenericAllocationHandle memory = 0;
    bool leaving = false;  // Its memory is being taken. The addresses are not free yet.
    bool shared = false;   // Another worker's.
  };

  // These need mutex_.
  void open(const protocol::CreditRequest& request);
  void drop_unless_held(const protocol::CreditRequest& request);
  void drop();
  int place(const protocol::CreditRequest& request, protocol::CreditGrant* grant);
  int place_at(std::uint64_t at, std::uint64_t bytes, protocol::CreditGrant* grant);
  int map(std::uint64_t at, std::uint64_t bytes, Piece* piece);
  std::uint64_t find_gap(std::uint64_t bytes) const;
  std::uint64_t gap_at(std::uint64_t at) const;
  std::uint64_t generous(std::uint64_t least) const;
  CUmemAllocationProp properties() const;
  int map_shared(std::uint64_t at, const SharedPiece& shared, Piece* piece) const;
  std::vector<CUmemAccessDesc> access_descriptions() const;
  struct Adopted {
    std::vector<std::pair<std::uint64_t, Piece>> pieces;  // By address.
    std::uint64_t bytes = 0;
    bool in_window = false;
  };
  int give_up(std::uint64_t at, const Adopted& adopted);

  int unmap(std::uint64_t at, const Piece& piece) const;

  const CudaDriver& driver_;
  const int device_;
  DirectMemory* const direct_;
  mutable std::mutex mutex_;  // Guards all below.
  State state_ = State::kUnknown;
  // Set by grant_first(), until a request shows whether the client holds the window.
  bool unasked_ = false;
  std::uint64_t base_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t granule_ = 0;
  std::uint64_t next_credit_ = 0;
  std::map<std::uint64_t, Piece> pieces_;
  // Pieces of grant_first() that a request has removed. A client that could not hold them returns
  // them before its first request, but requests overtake returns.
  std::set<std::uint64_t> gone_;
  std::map<std::uint64_t, Adopted> adopted_;
  std::vector<CUmemAccessDesc> access_;
};

// cuMemAlloc_v2 and cuMemFree_v2: form raw is served here, and other forms by the generic path.
void add_device_window_handlers(Handlers& handlers);

}  // namespace gpurun::server
