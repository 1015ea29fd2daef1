// OutputCapture: the output of kernels on its way to the client. The driver writes it to the stdout
// of this process, and the messages of assertions to the `stderr` of the C library.
//
// Both go to the client, each in order: output from before a synchronisation arrives before its
// reply. The descriptor of stderr stays, for messages to the operator of the server.
//
// One object at a time in a process. Any thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "base/unique_fd.h"
#include "server/worker/execution/outbox.h"

namespace gpurun::server {

class OutputCapture {
 public:
  // Replaces stdout and `stderr` by pipes. `outbox` is borrowed. kResourceExhausted: no descriptor.
  static Result<std::unique_ptr<OutputCapture>> start(Outbox& outbox);
  // Restores stdout and `stderr`.
  ~OutputCapture();
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;

  // Posts everything that was written so far.
  void drain();

  // Output that the client has not taken yet. Beyond this, kernels that print block.
  static constexpr std::size_t kAheadBytes = std::size_t{16} << 20;

 private:
  explicit OutputCapture(Outbox& outbox) : outbox_(outbox) {}
  void run();
  void post_what_is_there();
  void post_from(int pipe, std::uint8_t flags);

  Outbox& outbox_;
  UniqueFd before_;              // The original stdout.
  std::FILE* errors_ = nullptr;  // Replaces `stderr`.
  std::FILE* errors_before_ = nullptr;
  UniqueFd read_end_;         // Of the pipe for stdout.
  UniqueFd errors_read_end_;  // Of the pipe for `stderr`.
  UniqueFd written_;          // An epoll of both pipes: something was written.
  UniqueFd stop_;             // Readable: the thread ends.
  std::mutex mutex_;          // Held from reading to posting, so that output stays in order.
  std::thread thread_;
};

}  // namespace gpurun::server
