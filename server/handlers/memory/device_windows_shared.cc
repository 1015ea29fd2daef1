// DeviceWindows: pieces of windows that go from worker to worker.
#include "protocol/limits.h"
#include "server/handlers/memory/device_windows.h"

namespace gpurun::server {

bool DeviceWindow::reaches(std::uint64_t address) const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kOpen && address >= base_ && address - base_ < bytes_;
}

int DeviceWindow::share(std::uint64_t address, std::uint64_t bytes,
                        std::vector<SharedPiece>* pieces, std::uint64_t* offset) const {
  const std::lock_guard lock(mutex_);
  auto at = pieces_.upper_bound(address);
  if (at == pieces_.begin() || bytes == 0 || address + bytes < address) return kErrorInvalidValue;
  --at;
  *offset = address - at->first;
  for (std::uint64_t reached = at->first; reached < address + bytes; ++at) {
    if (at == pieces_.end() || at->first != reached || at->second.leaving || at->second.shared) {
      return kErrorInvalidValue;
    }
    int file = -1;
    const int result =
        GPURUN_DRIVER(driver_, cuMemExportToShareableHandle, &file, at->second.memory,
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != 0) return result;
    pieces->push_back({UniqueFd(file), at->second.bytes});
    reached += at->second.bytes;
  }
  return pieces->empty() || *offset >= pieces->front().bytes ? kErrorInvalidValue : 0;
}

int DeviceWindow::map_shared(std::uint64_t at, const SharedPiece& shared, Piece* piece) const {
  CUmemGenericAllocationHandle memory = 0;
  const auto file = static_cast<std::intptr_t>(shared.memory.get());
  int result =
      GPURUN_DRIVER(driver_, cuMemImportFromShareableHandle, &memory, reinterpret_cast<void*>(file),
                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != 0) return result;
  result = GPURUN_DRIVER(driver_, cuMemMap, at, shared.bytes, 0, memory, 0);
  if (result == 0) {
    const std::vector<CUmemAccessDesc> access = access_descriptions();
    result = GPURUN_DRIVER(driver_, cuMemSetAccess, at, shared.bytes, access.data(), access.size());
    if (result == 0) {
      *piece = {shared.bytes, memory, false, true};
      return 0;
    }
    (void)GPURUN_DRIVER(driver_, cuMemUnmap, at, shared.bytes);
  }
  (void)GPURUN_DRIVER(driver_, cuMemRelease, memory);
  return result;
}

int DeviceWindow::adopt(const protocol::CreditRequest& request,
                        const std::vector<SharedPiece>& pieces, protocol::CreditGrant* grant,
                        std::uint64_t* at) {
  *grant = {};
  Adopted adopted;
  for (const SharedPiece& piece : pieces) {
    if (piece.bytes == 0 || piece.bytes > limits::kWindowBytesMax) return kErrorInvalidValue;
    adopted.bytes += piece.bytes;
  }
  if (pieces.empty() || adopted.bytes > limits::kWindowBytesMax ||
      request.window_bytes > limits::kWindowBytesMax) {
    return kErrorInvalidValue;
  }
  const std::lock_guard lock(mutex_);
  open(request);
  CUdeviceptr place = 0;
  if (state_ == State::kOpen) {
    grant->window = base_;
    grant->window_bytes = bytes_;
    place = find_gap(adopted.bytes);
  }
  adopted.in_window = place != 0;
  if (place == 0) {
    const int result = GPURUN_DRIVER(driver_, cuMemAddressReserve, &place, adopted.bytes, 0, 0, 0);
    if (result != 0) return result;
  }
  std::uint64_t next = place;
  for (const SharedPiece& shared : pieces) {
    Piece piece;
    const int result = map_shared(next, shared, &piece);
    if (result != 0) {
      (void)give_up(place, adopted);
      return result;
    }
    adopted.pieces.emplace_back(next, piece);
    if (adopted.in_window) pieces_.emplace(next, piece);
    next += shared.bytes;
  }
  *at = place;
  adopted_.emplace(place, std::move(adopted));
  return 0;
}

// Needs the mutex.
int DeviceWindow::give_up(std::uint64_t at, const Adopted& adopted) {
  int result = 0;
  for (const auto& [start, piece] : adopted.pieces) {
    const int each = unmap(start, piece);
    if (each != 0) result = each;
    if (each == 0 && adopted.in_window) pieces_.erase(start);
  }
  if (!adopted.in_window && result == 0) {
    result = GPURUN_DRIVER(driver_, cuMemAddressFree, at, adopted.bytes);
  }
  return result;
}

int DeviceWindow::release(std::uint64_t at) {
  const std::lock_guard lock(mutex_);
  const auto found = adopted_.find(at);
  if (found == adopted_.end()) return kErrorInvalidValue;
  const Adopted adopted = std::move(found->second);
  adopted_.erase(found);
  return give_up(at, adopted);
}

}  // namespace gpurun::server
