// OutputCapture: what kernels print. The driver writes it to this process's stdout; it goes to the
// client's, in order: what was printed before a synchronisation arrives before its reply.
//
// One at a time in a process. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"
#include "server/worker/outbox.h"

namespace gpurun::server {

class OutputCapture {
 public:
  // Puts a pipe in stdout's place. `outbox` is borrowed. kResourceExhausted: no descriptor.
  static Result<std::unique_ptr<OutputCapture>> start(Outbox& outbox);
  // Stdout is what it was.
  ~OutputCapture();
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;

  // Posts everything that was written so far.
  void drain();

  // Output that the client has not taken yet; kernels that print wait beyond.
  static constexpr std::size_t kAheadBytes = std::size_t{16} << 20;

 private:
  explicit OutputCapture(Outbox& outbox) : outbox_(outbox) {}
  void run();
  void post_what_is_there();

  Outbox& outbox_;
  UniqueFd before_;  // Stdout as it was.
  UniqueFd read_end_;
  UniqueFd stop_;     // Readable: end.
  std::mutex mutex_;  // Held from reading to posting, so that nothing overtakes.
  std::thread thread_;
};

}  // namespace gpurun::server
