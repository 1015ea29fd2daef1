// DeviceWindows: the worker's book of device memory that the client cuts up by itself
// (docs/adr/0005): the window of each device, and the pieces of it that have memory. All addresses
// are chosen here or by the driver; what the client names is looked up and never taken on trust.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
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
  // Before any request: a window and a little memory, which needs no context. False: there is none,
  // and the client's first request decides.
  bool grant_first(protocol::CreditGrant* grant);
  // Takes the memory of the piece at `piece`. INVALID_VALUE: there is none, nor was there one that
  // a request which overtook this has made go.
  int take_back(std::uint64_t piece);
  // Takes all, and the addresses. There is no window from now on.
  int close();

  // Whether the address is in the window, whatever lies there.
  bool reaches(std::uint64_t address) const;
  // A piece of memory on its way between workers.
  struct SharedPiece {
    UniqueFd memory;  // As cuMemExportToShareableHandle gives it.
    std::uint64_t bytes = 0;
  };
  // The pieces that [address, address + bytes) lies in, in order, and where it begins in the first.
  // INVALID_VALUE: there are none, or they are another process's; else the driver's.
  int share(std::uint64_t address, std::uint64_t bytes, std::vector<SharedPiece>* pieces,
            std::uint64_t* offset) const;
  // Maps another worker's pieces next to each other: in the window if there is one, which is opened
  // with `request` if need be, else wherever the driver has addresses. `*grant` as from grant();
  // `*at`: where they begin.
  int adopt(const protocol::CreditRequest& request, const std::vector<SharedPiece>& pieces,
            protocol::CreditGrant* grant, std::uint64_t* at);
  // Of adopt(): unmaps what begins there. INVALID_VALUE: nothing does.
  int release(std::uint64_t at);

  // Of all pieces of its own, for tests.
  std::uint64_t committed_bytes() const;

 private:
  enum class State : std::uint8_t { kUnknown, kOpen, kNone };
  struct Piece {
    std::uint64_t bytes = 0;
    CUmemGenericAllocationHandle memory = 0;
    bool leaving = false;  // Its memory is being taken; the addresses are not free yet.
    bool shared = false;   // Another worker's.
  };

  // All under mutex_.
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
  std::vector<CUmemAccessDesc> who_reaches() const;
  struct Adopted {
    std::vector<std::pair<std::uint64_t, Piece>> pieces;  // By address.
    std::uint64_t bytes = 0;
    bool in_window = false;
  };
  int give_up(std::uint64_t at, const Adopted& adopted);

  int unmap(std::uint64_t at, const Piece& piece) const;

  const CudaDriver& driver_;
  const int device_;
  mutable std::mutex mutex_;  // Guards all below.
  State state_ = State::kUnknown;
  // Of grant_first(), and no request has shown yet whether the client holds it.
  bool unasked_ = false;
  std::uint64_t base_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t granule_ = 0;
  std::uint64_t next_credit_ = 0;
  std::map<std::uint64_t, Piece> pieces_;
  // Pieces of grant_first() that went by a request. The client, which could not hold them, gives
  // them back before it makes one, but requests pass what is given back.
  std::set<std::uint64_t> gone_;
  std::map<std::uint64_t, Adopted> adopted_;
  std::vector<CUmemAccessDesc> access_;
};

// cuMemAlloc_v2 and cuMemFree_v2: form raw here, others as the row says.
void add_device_window_handlers(Handlers& handlers);

}  // namespace gpurun::server
