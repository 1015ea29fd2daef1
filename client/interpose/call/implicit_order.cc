// Implicit order: the first blocking stream, and legacy work behind kept frees.
#include "client/interpose/call/implicit_order.h"

namespace gpurun::client::interpose {
namespace {

constinit std::atomic<PostKept> g_post_kept{nullptr};

void post_kept(const EntryContext& here, KeptIn where) {
  if (const PostKept post = g_post_kept.load(); post != nullptr) post(here, where);
}

}  // namespace

void set_post_kept(PostKept post) noexcept { g_post_kept.store(post); }

// Another thread may be about to keep a free. It sets the callback and then reads the state, and
// this function does it the other way round. So one of the two sees the other.
void before_blocking_stream(const EntryContext& here) {
  if (g_blocking_streams.load(std::memory_order_acquire) == BlockingStreams::kExist) return;
  auto none = BlockingStreams::kNone;
  g_blocking_streams.compare_exchange_strong(none, BlockingStreams::kBegin);
  post_kept(here, KeptIn::kLegacyStream);
  g_blocking_streams.store(BlockingStreams::kExist);
}

void before_default_stream(const EntryContext& here, Handle stream) {
  if (stream == protocol::kStreamPerThread) return before_blocking_stream(here);
  // A thread that knows of another thread's free has synchronised with that thread.
  if (g_kept_in_blocking_streams.load(std::memory_order_relaxed) != 0) {
    post_kept(here, KeptIn::kBlockingStreams);
  }
}

}  // namespace gpurun::client::interpose
