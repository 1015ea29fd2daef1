// LinkRegistry: the link states of a session (cuLink*). The driver writes logs and times into
// memory that its caller keeps for the life of the state. That memory is here, and each reply
// carries its content (protocol/calls/link_calls.h).
//
// A client may name any state at any time, from several threads. Only a live state that no other
// call uses reaches the driver. Calls of one state wait for each other. The bounds are
// limits::kLinkStatesMax and limits::kLinkBytesMax. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "protocol/calls/link_calls.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/modules/jit_arguments.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

struct Link {
  explicit Link(const protocol::LinkCreate& create)
      : jit(create.options, create.info_log_bytes, create.error_log_bytes, create.wall_time) {}

  std::mutex mutex;  // Held during each driver call and taken before the book's mutex. It guards:
  JitArguments jit;
  CUlinkState state = nullptr;  // nullptr: not created yet, or ended.
  const void* image = nullptr;  // The driver's, until the state ends. nullptr: not completed.
  std::size_t image_bytes = 0;
  // Constant.
  std::uint64_t context = 0;  // The client's handle.
  // Guarded by the book's mutex.
  std::size_t bytes = 0;  // Counted bytes of its inputs.
};

class LinkRegistry {
 public:
  // `driver` is borrowed and outlives this.
  explicit LinkRegistry(const CudaDriver& driver) : driver_(driver) {}
  LinkRegistry(const LinkRegistry&) = delete;
  LinkRegistry& operator=(const LinkRegistry&) = delete;

  // OUT_OF_MEMORY: too many are open. Otherwise find() finds the link until take().
  int add(std::uint64_t handle, std::shared_ptr<Link> link);
  // nullptr: there is no such link.
  std::shared_ptr<Link> find(std::uint64_t handle) const;
  // Counts an input of `bytes` bytes until take(). OUT_OF_MEMORY: too many bytes.
  int count_input(std::uint64_t handle, std::size_t bytes);
  // Forgets the link. The caller holds its mutex and has ended its `state`.
  void take(std::uint64_t handle);

  // The context ends. Its link states are removed here, in `handles` and in the driver.
  void end_context(std::uint64_t context, HandleTable& handles);

 private:
  const CudaDriver& driver_;
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Link>> links_;  // Guarded by mutex_.
  std::size_t bytes_ = 0;                                           // Guarded by mutex_.
};

void add_link_handlers(Handlers& handlers);

}  // namespace gpurun::server
