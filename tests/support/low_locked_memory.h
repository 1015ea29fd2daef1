// LowLockedMemory: a low limit of locked memory for this thread, as that of a user without
// CAP_IPC_LOCK.
#pragma once

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gpurun::test {

class LowLockedMemory {
 public:
  explicit LowLockedMemory(rlim_t bytes) {
    EXPECT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit_), 0);
    const rlimit low = {bytes, limit_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
    EXPECT_EQ(syscall(SYS_capget, &header_, capabilities_), 0);
    __user_cap_data_struct fewer[2] = {capabilities_[0], capabilities_[1]};
    fewer[0].effective &= ~(1U << CAP_IPC_LOCK);
    EXPECT_EQ(syscall(SYS_capset, &header_, fewer), 0);
  }
  ~LowLockedMemory() {
    EXPECT_EQ(syscall(SYS_capset, &header_, capabilities_), 0);
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit_), 0);
  }
  LowLockedMemory(const LowLockedMemory&) = delete;
  LowLockedMemory& operator=(const LowLockedMemory&) = delete;

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct capabilities_[2] = {};
  rlimit limit_ = {};
};

}  // namespace gpurun::test
