// ShareableHandles: allocations and pools that this worker shares with others of its lease by
// descriptors (docs/adr/0041).
//
// The driver's descriptor goes to the daemon, which gives it to any worker of the lease that
// presents the token. The client holds the token in a descriptor of its own process. While a token
// lives, the worker withholds the releases of its allocation from the driver. So the allocation
// lives, and counts as used, as long as the program has the descriptor open.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "protocol/calls/shareable_handle.h"
#include "server/driver/cuda_driver.h"
#include "server/exchange/exchange_client.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

// Any thread. A request to the daemon blocks for its answer. Functions return CUresults.
class ShareableHandles {
 public:
  // `driver` is borrowed and outlives this.
  explicit ShareableHandles(const CudaDriver& driver);
  ~ShareableHandles();
  ShareableHandles(const ShareableHandles&) = delete;
  ShareableHandles& operator=(const ShareableHandles&) = delete;

  // Before the first call. Without it, nothing can be shared: CUDA_ERROR_NOT_SUPPORTED.
  void set_exchange(std::shared_ptr<ExchangeClient> exchange) { exchange_ = std::move(exchange); }

  // OUT_OF_MEMORY: a bound of the exchange is reached, or there is no daemon any more.
  int begin_export(CUmemGenericAllocationHandle memory, protocol::SharingHandle* token);
  int begin_export(CUmemoryPool pool, protocol::SharingHandle* token);
  // INVALID_VALUE: it is not a token of this worker.
  int end_export(const protocol::SharingHandle& token);
  // The caller owns `*memory`. INVALID_VALUE: the token names no allocation of this lease (any
  // more).
  int import(const protocol::SharingHandle& token, CUmemGenericAllocationHandle* memory,
             int* device);
  // As import(). The caller owns `*pool`.
  int import_pool(const protocol::SharingHandle& token, CUmemoryPool* pool);
  // cuMemRelease of the driver, now or after the last export of the allocation.
  int release(CUmemGenericAllocationHandle memory);

  // The function that replaces the driver's (Dispatch::substitute()). nullptr: there is no
  // replacement.
  static void* substitute(std::uint16_t opcode);
  // The object of this worker. nullptr: not created.
  static ShareableHandles* current() { return current_.load(); }

 private:
  struct Exported {
    unsigned tokens = 0;
    unsigned withheld = 0;  // Releases that the driver has not had.
  };

  // Puts the driver's descriptor into the exchange. The mutex is held.
  int put(int result, int descriptor, std::uint64_t magic, protocol::SharingHandle* token);
  int get(const protocol::SharingHandle& token, std::uint64_t magic, UniqueFd* file) const;

  static std::atomic<ShareableHandles*> current_;

  const CudaDriver& driver_;
  std::shared_ptr<ExchangeClient> exchange_;
  std::mutex mutex_;  // Guards all below.
  // 0: of a pool. Pools end when the program destroys them.
  std::map<protocol::SharingHandle, CUmemGenericAllocationHandle> tokens_;
  std::map<CUmemGenericAllocationHandle, Exported> exported_;
};

// cuMemExportToShareableHandle, cuMemImportFromShareableHandle and their counterparts for pools, in
// form raw.
void add_shareable_handle_handlers(Handlers& handlers);

}  // namespace gpurun::server
