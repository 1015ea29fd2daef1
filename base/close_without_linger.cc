// A thread with a descriptor table of its own: the kernel closes that table when the thread ends.
#include "base/close_without_linger.h"

#include <sched.h>

#include <exception>
#include <future>
#include <thread>
#include <utility>

namespace gpurun {

void close_without_linger(UniqueFd file) noexcept {
  try {
    std::promise<bool> has_it, is_closed;
    std::thread last([&has_it, closed = is_closed.get_future()] {
      const bool own = unshare(CLONE_FILES) == 0;
      has_it.set_value(own);
      if (own) closed.wait();
    });
    const bool own = has_it.get_future().get();
    if (own) {
      file.reset();  // Not the last: the thread has a copy.
      is_closed.set_value(true);
    } else {
      static_cast<void>(file.release());
    }
    last.join();
  } catch (const std::exception&) {
    static_cast<void>(file.release());
  }
}

}  // namespace gpurun
