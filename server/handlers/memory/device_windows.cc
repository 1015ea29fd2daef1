// DeviceWindows: maps pieces of windows and takes them back. The handlers of credits are here too.
#include "server/handlers/memory/device_windows.h"

#include <algorithm>
#include <cstring>

#include "protocol/calls/call.h"
#include "protocol/limits.h"
#include "server/driver/direct_memory.h"
#include "server/handlers/state/handler_state.h"
#include "server/worker/execution/executor.h"

namespace gpurun::server {
namespace {

using protocol::CreditGrant;
using protocol::CreditRequest;
using protocol::MemoryReturn;
using protocol::ReturnKind;

// Little memory may be left for several clients to share.
constexpr std::uint64_t kShareOfFree = 16;
// The parts of a grant, each of which can be given back: 2 MiB for the first grants. Each part is
// an allocation of the driver, which should not have thousands of them.
constexpr std::uint64_t kPartsOfGrant = 16;

// The memory that comes with an attach: enough for small programs, and a small loss if unused.
constexpr std::uint64_t kFirstBytes = std::uint64_t{8} << 20;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

CUmemAllocationProp DeviceWindow::properties() const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  // This allows sharing with another worker (share()).
  int exportable = 0;
  if (GPURUN_DRIVER(driver_, cuDeviceGetAttribute, &exportable,
                    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                    device_) == 0 &&
      exportable != 0) {
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  // RDMA devices reach no other memory of VMM.
  int direct = 0;
  if (direct_ != nullptr && direct_->is_allowed() &&
      GPURUN_DRIVER(driver_, cuDeviceGetAttribute, &direct,
                    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device_) == 0 &&
      direct != 0) {
    properties.allocFlags.gpuDirectRDMACapable = 1;
  }
  return properties;
}

// With VMM, peer access does not depend on contexts. All devices that can reach the memory get
// access, as after cuCtxEnablePeerAccess.
std::vector<CUmemAccessDesc> DeviceWindow::access_descriptions() const {
  std::vector<CUmemAccessDesc> access_of;
  int devices = 0;
  (void)GPURUN_DRIVER(driver_, cuDeviceGetCount, &devices);
  for (int other = 0; other < devices; ++other) {
    int reaches = other == device_ ? 1 : 0;
    if (reaches == 0) {
      (void)GPURUN_DRIVER(driver_, cuDeviceCanAccessPeer, &reaches, other, device_);
    }
    if (reaches == 0) continue;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = other;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access_of.push_back(access);
  }
  return access_of;
}

// The first request shows whether the client holds the unrequested window. If not, the window is
// dropped, and the request decides about a window.
void DeviceWindow::drop_unless_held(const CreditRequest& request) {
  if (!std::exchange(unasked_, false) || state_ != State::kOpen ||
      (request.wished_window == base_ && request.window_bytes >= bytes_)) {
    return;
  }
  // While the driver still has something mapped, the addresses stay and the client declines the
  // window.
  for (const auto& [at, piece] : pieces_) {
    if (piece.leaving) return;
  }
  for (const auto& [at, piece] : pieces_) gone_.insert(at);
  drop();
}

void DeviceWindow::drop() {
  for (const auto& [at, piece] : pieces_) (void)unmap(at, piece);
  pieces_.clear();
  (void)GPURUN_DRIVER(driver_, cuMemAddressFree, base_, bytes_);
  state_ = State::kUnknown;
}

void DeviceWindow::open(const CreditRequest& request) {
  drop_unless_held(request);
  if (state_ != State::kUnknown || request.wished_window == 0) return;
  state_ = State::kNone;
  int supported = 0;
  if (GPURUN_DRIVER(driver_, cuDeviceGetAttribute, &supported,
                    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device_) != 0 ||
      supported == 0) {
    return;
  }
  std::size_t granule = 0;
  const CUmemAllocationProp of = properties();
  if (GPURUN_DRIVER(driver_, cuMemGetAllocationGranularity, &granule, &of,
                    CU_MEM_ALLOC_GRANULARITY_MINIMUM) != 0 ||
      granule == 0 || granule > limits::kCreditBytesFirst) {
    return;
  }
  const std::uint64_t bytes = request.window_bytes / granule * granule;
  CUdeviceptr base = 0;
  if (bytes == 0 ||
      GPURUN_DRIVER(driver_, cuMemAddressReserve, &base, bytes, 0, request.wished_window, 0) != 0) {
    return;
  }
  access_ = access_descriptions();
  base_ = base;
  bytes_ = bytes;
  granule_ = granule;
  next_credit_ = limits::kCreditBytesFirst;
  state_ = State::kOpen;
}

// 0: there is no gap.
std::uint64_t DeviceWindow::find_gap(std::uint64_t bytes) const {
  std::uint64_t at = base_;
  for (const auto& [start, piece] : pieces_) {
    if (start - at >= bytes) return at;
    at = start + piece.bytes;
  }
  return base_ + bytes_ - at >= bytes ? at : 0;
}

// The number of bytes from `at` on without memory, if a piece could begin there. Else 0.
std::uint64_t DeviceWindow::gap_at(std::uint64_t at) const {
  if (at < base_ || at - base_ >= bytes_ || (at - base_) % granule_ != 0) return 0;
  const auto next = pieces_.upper_bound(at);
  if (next != pieces_.begin()) {
    const auto& [start, piece] = *std::prev(next);
    if (at - start < piece.bytes) return 0;
  }
  return (next == pieces_.end() ? base_ + bytes_ : next->first) - at;
}

// The number of bytes to give to a client that needs `least`.
std::uint64_t DeviceWindow::generous(std::uint64_t least) const {
  std::size_t free_bytes = 0, total_bytes = 0;
  if (GPURUN_DRIVER(driver_, cuMemGetInfo_v2, &free_bytes, &total_bytes) != 0) return least;
  const std::uint64_t share = round_up(free_bytes / kShareOfFree, granule_);
  return std::max(least, std::min(round_up(next_credit_, granule_), share));
}

int DeviceWindow::map(std::uint64_t at, std::uint64_t bytes, Piece* piece) {
  const CUmemAllocationProp of = properties();
  CUmemGenericAllocationHandle memory = 0;
  int result = GPURUN_DRIVER(driver_, cuMemCreate, &memory, bytes, &of, 0);
  if (result != 0) return result;
  result = GPURUN_DRIVER(driver_, cuMemMap, at, bytes, 0, memory, 0);
  if (result == 0) {
    piece->bytes = bytes;
    piece->memory = memory;
    return 0;
  }
  (void)GPURUN_DRIVER(driver_, cuMemRelease, memory);
  return result;
}

int DeviceWindow::place_at(std::uint64_t at, std::uint64_t bytes, CreditGrant* grant) {
  const std::uint64_t part = round_up(bytes / kPartsOfGrant, granule_);
  std::map<std::uint64_t, Piece> made;
  int result = 0;
  for (std::uint64_t next = at; result == 0 && next < at + bytes; next += part) {
    Piece piece;
    result = map(next, std::min(part, at + bytes - next), &piece);
    if (result == 0) made.emplace(next, piece);
  }
  if (result == 0) {
    result = GPURUN_DRIVER(driver_, cuMemSetAccess, at, bytes, access_.data(), access_.size());
  }
  if (result != 0) {
    for (const auto& [start, piece] : made) (void)unmap(start, piece);
    return result;
  }
  for (const auto& [start, piece] : made) {
    if (direct_ != nullptr) direct_->add_piece(device_, start, piece.bytes);
  }
  pieces_.merge(made);
  grant->piece = at;
  grant->piece_bytes = bytes;
  grant->part_bytes = part;
  return 0;
}

// Tries a generous size, then the least size. Memory directly behind the client's idle memory comes
// first, because both then form one range.
int DeviceWindow::place(const CreditRequest& request, CreditGrant* grant) {
  const std::uint64_t room_behind = gap_at(request.behind);
  const std::uint64_t least_behind = round_up(request.behind_bytes, granule_);
  const std::uint64_t least = round_up(request.bytes, granule_);
  const std::uint64_t more_behind = least_behind == 0 ? 0 : generous(least_behind);
  const std::uint64_t more = generous(least);
  const struct {
    bool behind;
    std::uint64_t bytes;
    std::uint64_t least;
  } tries[] = {{true, more_behind, least_behind},
               {true, least_behind, least_behind},
               {false, more, least},
               {false, least, least}};
  int result = kErrorOutOfMemory;
  for (const auto& each : tries) {
    if (each.bytes == 0 || (each.behind && each.bytes > room_behind)) continue;
    const std::uint64_t at = each.behind ? request.behind : find_gap(each.bytes);
    if (at == 0) continue;
    result = place_at(at, each.bytes, grant);
    if (result != 0) continue;
    if (each.bytes > each.least) next_credit_ = std::min(next_credit_ * 2, limits::kCreditBytesMax);
    return 0;
  }
  return result;
}

int DeviceWindow::grant(const CreditRequest& request, CreditGrant* grant) {
  *grant = {};
  if (request.bytes == 0 || request.bytes > limits::kWindowedBytesMax ||
      request.window_bytes > limits::kWindowBytesMax || request.behind_bytes > request.bytes) {
    return kErrorInvalidValue;
  }
  const std::lock_guard lock(mutex_);
  open(request);
  if (state_ == State::kOpen) {
    grant->window = base_;
    grant->window_bytes = bytes_;
    if (place(request, grant) == 0) return 0;
  }
  CUdeviceptr plain = 0;
  const int result = GPURUN_DRIVER(driver_, cuMemAlloc_v2, &plain, request.bytes);
  if (result != 0) return result;
  // Another process may have given memory back between the two calls, so the window is tried again.
  // Such memory is of a piece's size, and a plain allocation would leave an unusable rest.
  if (state_ == State::kOpen && place(request, grant) == 0) {
    (void)GPURUN_DRIVER(driver_, cuMemFree_v2, plain);
  } else {
    grant->plain = plain;
  }
  return 0;
}

bool DeviceWindow::grant_first(CreditGrant* grant) {
  std::size_t total = 0;
  if (GPURUN_DRIVER(driver_, cuDeviceTotalMem_v2, &total, device_) != 0) return false;
  CreditRequest request;
  request.wished_window = protocol::kFirstWindowPlace;
  request.window_bytes =
      std::min<std::uint64_t>(total, limits::kWindowBytesMax / protocol::kWindowBytesPerByte) *
      protocol::kWindowBytesPerByte;
  *grant = {};
  const std::lock_guard lock(mutex_);
  if (state_ != State::kUnknown) return false;
  open(request);
  if (state_ != State::kOpen) {
    state_ = State::kUnknown;
    return false;
  }
  const std::uint64_t bytes =
      std::min<std::uint64_t>(kFirstBytes, total / kShareOfFree) / granule_ * granule_;
  if (bytes == 0 || place_at(base_, bytes, grant) != 0) {
    drop();
    return false;
  }
  unasked_ = true;
  grant->window = base_;
  grant->window_bytes = bytes_;
  return true;
}

int DeviceWindow::unmap(std::uint64_t at, const Piece& piece) const {
  if (direct_ != nullptr) direct_->remove(at);
  const int unmapped = GPURUN_DRIVER(driver_, cuMemUnmap, at, piece.bytes);
  const int released = GPURUN_DRIVER(driver_, cuMemRelease, piece.memory);
  return unmapped != 0 ? unmapped : released;
}

int DeviceWindow::take_back(std::uint64_t at) {
  std::unique_lock lock(mutex_);
  if (gone_.erase(at) != 0) return 0;
  const auto found = pieces_.find(at);
  if (found == pieces_.end() || found->second.leaving || found->second.shared) {
    return kErrorInvalidValue;
  }
  found->second.leaving = true;
  const Piece piece = found->second;
  // A first request that came meanwhile would find addresses that it cannot free.
  if (!unasked_) lock.unlock();
  const int result = unmap(at, piece);
  if (!lock.owns_lock()) lock.lock();
  // Nothing can be placed again where the driver still has something mapped.
  if (result == 0) pieces_.erase(at);
  return result;
}

int DeviceWindow::close() {
  std::vector<std::uint64_t> left;
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kOpen) return kErrorInvalidValue;
    state_ = State::kNone;
    for (const auto& [at, piece] : pieces_) {
      if (!piece.shared) left.push_back(at);
    }
  }
  int result = 0;
  for (const std::uint64_t at : left) {
    if (const int each = take_back(at); each != 0) result = each;
  }
  if (result != 0) return result;
  return GPURUN_DRIVER(driver_, cuMemAddressFree, base_, bytes_);
}

std::uint64_t DeviceWindow::committed_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& [at, piece] : pieces_) bytes += piece.shared ? 0 : piece.bytes;
  return bytes;
}

namespace {

// Copies the payload if its size is exactly right.
template <typename Payload>
bool copy_payload(const Call& call, Payload* payload) {
  if (call.payload().size() != sizeof *payload) return false;
  std::memcpy(payload, call.payload().data(), sizeof *payload);
  return true;
}

CallOutcome run_allocate(Call& call) {
  HandlerState& state = HandlerState::of(call);
  if (call.header().form != protocol::Form::kRaw) return state.dispatch().run(call);
  CreditRequest request;
  // Without a reply the grant would be lost.
  if (!call.awaited() || !copy_payload(call, &request)) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  CUdevice device = -1;
  if (const int result = GPURUN_DRIVER(state.driver(), cuCtxGetDevice, &device); result != 0) {
    return CallOutcome::done(result);
  }
  DeviceWindow* const window = state.window(device);
  if (window == nullptr) return CallOutcome::done(kErrorInvalidValue);
  CreditGrant grant;
  const int result = window->grant(request, &grant);
  call.set_reply(bytes_of(grant));
  return CallOutcome::done(result);
}

int take_back(HandlerState& state, const MemoryReturn& payload) {
  if (payload.kind == ReturnKind::kFreed) return 0;
  DeviceWindow* const window = state.window(static_cast<int>(payload.device));
  if (window == nullptr) return kErrorInvalidValue;
  return payload.kind == ReturnKind::kPiece ? window->take_back(payload.piece) : window->close();
}

// The memory of a cuMemFree in its ordinary form leaves the RDMA device.
void end_direct_use(Call& call) {
  const driver_abi::Row* row = driver_abi::find_row(call.header().opcode);
  protocol::UnpackedCall unpacked;
  if (row == nullptr || !unpacked.unpack(*row, call.payload()).ok()) return;
  HandlerState::of(call).direct_memory().remove(unpacked.word(0));
}

bool only_waits(const Call& call) {
  MemoryReturn payload;
  return call.header().form == protocol::Form::kRaw && copy_payload(call, &payload) &&
         (payload.kind == ReturnKind::kFreed || payload.kind == ReturnKind::kOrder);
}

// On a thread that may block, unless only_waits() and the work is complete.
CallOutcome run_free(Call& call) {
  HandlerState& state = HandlerState::of(call);
  if (call.header().form != protocol::Form::kRaw) {
    end_direct_use(call);
    return state.dispatch().run(call);
  }
  MemoryReturn payload;
  if (call.header().order != protocol::Order::kOrderedHost || !copy_payload(call, &payload) ||
      payload.kind < ReturnKind::kFreed || payload.kind > ReturnKind::kOrder) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  if (payload.kind == ReturnKind::kOrder) return CallOutcome::done(0);  // For the executor.
  int result = call.driver_context() == nullptr ? 0 : call.driver().cuCtxSynchronize();
  if (result == 0) result = take_back(state, payload);
  if (result == 0) call.executor().tell_work_done(call.header(), payload.ticket);
  return CallOutcome::done(result);
}

}  // namespace

void add_device_window_handlers(Handlers& handlers) {
  set_handler(handlers, "cuMemAlloc_v2", &run_allocate);
  set_handler(handlers, "cuMemFree_v2", &run_free);
  handlers.only_waits = &only_waits;
}

}  // namespace gpurun::server
