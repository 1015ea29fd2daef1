// Context: the owner of a program's streams, modules and memory.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <vector>

#include "emulated/objects/context_state.h"
#include "emulated/objects/handle_table.h"
#include "emulated/objects/stream.h"

namespace gpurun::emulated {

// Any thread.
class Context final : public ContextState, public std::enable_shared_from_this<Context> {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kContext;

  Context(Device& device, unsigned flags, bool primary);

  bool is_primary() const { return primary_; }
  // False: destroyed, or a primary context that is not retained.
  bool is_active() const { return active_.load(std::memory_order_acquire); }
  void activate() { active_.store(true, std::memory_order_release); }

  std::atomic<unsigned> flags;
  std::atomic<int> uses{1};  // cuCtxAttach, cuCtxDetach.
  std::atomic<int> cache_config{0};
  std::atomic<int> shared_config{1};

  // The stream that handle 0 means. It is made on first use.
  StreamPtr legacy_stream();
  StreamPtr create_stream(unsigned flags, int priority);

  // Enqueues `operation` on `stream`, in CUDA's order with the legacy stream (Programming Guide,
  // "Default Stream"). Work issued to the legacy stream waits for all blocking streams of the
  // context. Work issued to a blocking stream waits for the legacy stream. OUT_OF_MEMORY when
  // Stream::enqueue() returns 0. `position`: the operation's position in the stream.
  CUresult issue(const StreamPtr& stream, OperationPtr operation,
                 std::uint64_t* position = nullptr);
  // Whether an operation issued to `stream` now could start at once.
  bool could_start(const Stream& stream);

  // Makes everything that is issued to this context later, on any stream, wait for that position.
  // The stream may belong to another context or to this one.
  void wait_for(const Stream::Dependency& earlier);

  // Waits until everything that was issued so far is complete. Returns the sticky error.
  CUresult synchronize();

  // Keeps `object` until everything that was issued so far is complete. Does not wait.
  void keep_while_busy(std::shared_ptr<const void> object);

  // The peers that this context may access. False: no change.
  bool enable_peer(const Context& peer);
  bool disable_peer(const Context& peer);

  // Handles of modules, streams, events and other objects that end with the context.
  void own(const Object& object);
  void disown(const Object& object);

  // The steps of end_context(), in order. Takes what the context owns, and forgets its peers and
  // the state of its kernels.
  std::set<std::uint64_t> take_owned();
  void deactivate() { active_.store(false, std::memory_order_release); }
  // Forgets streams and the error. A primary context can be activated again afterwards.
  void renew();

 private:
  std::vector<StreamPtr> live_streams();
  friend std::uint64_t issue_between(const std::vector<std::shared_ptr<Context>>& contexts,
                                     const StreamPtr& stream, OperationPtr operation);
  // Enqueues an operation on `stream` that waits for `earlier`.
  static void delay(Stream& stream, const Stream::Dependency& earlier);

  const bool primary_;
  std::atomic<bool> active_{false};

  std::shared_mutex streams_mutex_;
  StreamPtr legacy_;
  std::vector<std::weak_ptr<Stream>> streams_;
  // The dependency of streams that are made later. A null stream: no dependency. Guarded by
  // streams_mutex_.
  Stream::Dependency awaited_{};

  std::mutex mutex_;
  std::set<std::uint64_t> peers_;
  std::set<std::uint64_t> owned_;
};

using ContextPtr = std::shared_ptr<Context>;

// Enqueues `operation` on `stream`, after everything that was issued to `contexts` so far.
// Everything issued to them later, on any stream, waits for it. Returns its position. The host does
// not wait.
std::uint64_t issue_between(const std::vector<ContextPtr>& contexts, const StreamPtr& stream,
                            OperationPtr operation);

}  // namespace gpurun::emulated
