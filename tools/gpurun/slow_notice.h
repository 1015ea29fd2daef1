// SlowNotice: one line when something lasts longer than a person expects.
#pragma once

#include <functional>
#include <string>

#include "client/thread.h"

namespace gpurun::tools {

class SlowNotice {
 public:
  // Calls `say` with `text` on a thread of its own, if this object lives for 2 s. Without `say`, or
  // where no thread can be had, nothing is said.
  SlowNotice(std::function<void(const std::string&)> say, std::string text);
  // Waits for a `say` that has begun.
  ~SlowNotice();
  SlowNotice(const SlowNotice&) = delete;
  SlowNotice& operator=(const SlowNotice&) = delete;

 private:
  static void* watch(void* notice);

  const std::function<void(const std::string&)> say_;
  const std::string text_;
  int over_ = -1;  // An eventfd, readable once the object goes.
  client::Thread thread_;
};

}  // namespace gpurun::tools
