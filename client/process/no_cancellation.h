// NoCancellation: disables cancellation while a thread of the program uses the session's
// connections. A frame cut in half, or a role that is never given up, would end the session for all
// threads.
#pragma once

#include <pthread.h>

namespace gpurun::client {

class NoCancellation {
 public:
  NoCancellation() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace gpurun::client
