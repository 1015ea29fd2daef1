// Waiting for a reply.
#include "client/session_impl.h"

namespace gpurun::client {

void Session::Impl::await(Lane& lane, std::uint64_t sequence) {
  const std::lock_guard<std::mutex> lock(lane.mutex_);
  lane.awaited_ = sequence;
  lane.answered_ = false;
  lane.watermark_ = 0;
}

int Session::Impl::finish(Lane& lane, const CallSite& site, std::uint64_t sequence, Reply* reply) {
  const Clock::time_point start = stats.enabled() ? Clock::now() : Clock::time_point();
  send_log_through(sequence);
  bool answered = false;
  {
    std::unique_lock<std::mutex> lock(lane.mutex_);
    // No deadline: kernels may run for hours. The receiver's silence deadline bounds it.
    lane.arrived_.wait(lock, [&] {
      answered =
          lane.answered_ && bulk_completions.load(std::memory_order_acquire) >= lane.watermark_;
      return answered || !session->alive();
    });
    lane.awaited_ = 0;
    if (answered) *reply = Reply{lane.result_, lane.reply_};
  }
  if (stats.enabled()) stats.count_fence(site.opcode, Clock::now() - start);
  output.write_kept();
  if (!answered) return kResultPeerGone;
  if (const int lost = errors.sticky(site.context); lost != 0) return lost;
  const int earlier = errors.take(lane, site.context);
  return earlier != 0 ? earlier : reply->result;
}

}  // namespace gpurun::client
