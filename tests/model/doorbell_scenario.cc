// Doorbell scenario: the sender's bell alone, small enough to explore completely. No ring is lost,
// and the woken thread sees what each ringer did before.
#include <atomic>

#include "client/process/doorbell.h"
#include "tests/model/model.h"

namespace gpurun::client {

void doorbell() {
  Doorbell bell;
  std::atomic<bool> done[2] = {};
  model::exploring(true);
  const int waiter = model::spawn("waiter", [&] {
    bool seen[2] = {};
    while (!seen[0] || !seen[1]) {
      bell.wait();
      for (int i = 0; i < 2; ++i) seen[i] = done[i].load(std::memory_order_acquire);
    }
  });
  const auto ring = [&](int i) {
    done[i].store(true, std::memory_order_release);
    bell.ring();
  };
  const int other = model::spawn("other", [&] { ring(1); });
  ring(0);
  model::join(other);
  model::join(waiter);
}

}  // namespace gpurun::client
