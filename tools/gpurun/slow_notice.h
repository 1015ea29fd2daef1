// SlowNotice: prints one line when an operation takes longer than a person expects.
#pragma once

#include <functional>
#include <string>

#include "client/process/thread.h"

namespace gpurun::tools {

class SlowNotice {
 public:
  // Calls `say` with `text` on a thread of its own, if this object lives for 2 s. Does nothing
  // without `say`, or when no thread can be started.
  SlowNotice(std::function<void(const std::string&)> say, std::string text);
  // Waits for a running `say`.
  ~SlowNotice();
  SlowNotice(const SlowNotice&) = delete;
  SlowNotice& operator=(const SlowNotice&) = delete;

 private:
  static void* watch(void* notice);

  const std::function<void(const std::string&)> say_;
  const std::string text_;
  int over_ = -1;  // An eventfd, readable once the object is being destroyed.
  client::Thread thread_;
};

}  // namespace gpurun::tools
