// OutputCapture: what kernels print. The driver writes it to this process's stdout, and what
// assertions say to the C library's `stderr`; it goes to the client's, each in order: what was
// printed before a synchronisation arrives before its reply. The descriptor of stderr stays, for
// what is said to whoever runs the server.
//
// One at a time in a process. Any thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"
#include "server/worker/outbox.h"

namespace gpurun::server {

class OutputCapture {
 public:
  // Puts pipes in the places of stdout and `stderr`. `outbox` is borrowed. kResourceExhausted: no
  // descriptor.
  static Result<std::unique_ptr<OutputCapture>> start(Outbox& outbox);
  // They are what they were.
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
  void post_from(int pipe, std::uint8_t flags);

  Outbox& outbox_;
  UniqueFd before_;              // Stdout as it was.
  std::FILE* errors_ = nullptr;  // In the place of `stderr`.
  std::FILE* errors_before_ = nullptr;
  UniqueFd read_end_;         // Stdout's.
  UniqueFd errors_read_end_;  // Likewise, of `stderr`.
  UniqueFd written_;          // An epoll of both: something was written.
  UniqueFd stop_;             // Readable: end.
  std::mutex mutex_;          // Held from reading to posting, so that nothing overtakes.
  std::thread thread_;
};

}  // namespace gpurun::server
