// DeviceLedgers: the hand-over of the emulated devices' ledgers. No worker, not even a malicious
// one, leaves anything in a ledger. The worker's environment names the ledgers.
#include "server/handover/device_ledgers.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace gpurun::server {
namespace {

struct flock whole(short type) {
  struct flock lock {};
  lock.l_type = type;
  return lock;
}

TEST(DeviceLedgers, WorkerLeavesNothingInLedger) {
  const auto ledgers = DeviceLedgers::create(2);
  ASSERT_TRUE(ledgers.ok()) << ledgers.status().to_string();
  Result<UniqueFd> first = (*ledgers)->open(1);
  const Result<UniqueFd> second = (*ledgers)->open(1);
  ASSERT_TRUE(first.ok() && second.ok());
  // This kind of lock lives as long as any copy of the descriptor.
  struct flock taken = whole(F_WRLCK);
  ASSERT_EQ(fcntl(first->get(), F_OFD_SETLK, &taken), 0);
  struct flock seen = whole(F_WRLCK);
  ASSERT_EQ(fcntl(second->get(), F_OFD_GETLK, &seen), 0);
  EXPECT_EQ(seen.l_type, F_WRLCK);
  first->reset();
  seen = whole(F_WRLCK);
  ASSERT_EQ(fcntl(second->get(), F_OFD_GETLK, &seen), 0);
  EXPECT_EQ(seen.l_type, F_UNLCK);
  // It cannot keep bytes for later workers either.
  EXPECT_EQ(write(second->get(), "x", 1), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(ftruncate(second->get(), 4096), 0);
}

TEST(DeviceLedgers, EachDeviceHasItsOwnLedger) {
  const auto ledgers = DeviceLedgers::create(2);
  ASSERT_TRUE(ledgers.ok());
  const Result<UniqueFd> first = (*ledgers)->open(0);
  const Result<UniqueFd> second = (*ledgers)->open(1);
  ASSERT_TRUE(first.ok() && second.ok());
  struct flock taken = whole(F_WRLCK);
  ASSERT_EQ(fcntl(first->get(), F_OFD_SETLK, &taken), 0);
  EXPECT_EQ(fcntl(second->get(), F_OFD_SETLK, &taken), 0);
  EXPECT_FALSE((*ledgers)->open(2).ok());
  EXPECT_FALSE((*ledgers)->open(-1).ok());
}

// Workers hold such locks on as many bytes as they use. Another process plays their part here.
TEST(DeviceLedgers, CountsBytesUsedByWorkers) {
  const auto ledgers = DeviceLedgers::create(2);
  ASSERT_TRUE(ledgers.ok());
  EXPECT_EQ((*ledgers)->used_bytes(0, 1000), 0u);
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready) | pipe(go), 0);
  const pid_t worker = fork();
  if (worker == 0) {
    const Result<UniqueFd> file = (*ledgers)->open(0);
    for (const auto& [first, bytes] : {std::pair{0, 10}, {100, 50}, {990, 5}}) {
      struct flock lock = whole(F_WRLCK);
      lock.l_start = first;
      lock.l_len = bytes;
      if (!file.ok() || fcntl(file->get(), F_SETLK, &lock) != 0) _exit(1);
    }
    char byte = 0;
    _exit(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ((*ledgers)->used_bytes(0, 1000), 65u);
  EXPECT_EQ((*ledgers)->used_bytes(1, 1000), 0u);
  ASSERT_EQ(write(go[1], &byte, 1), 1);
  int status = -1;
  ASSERT_EQ(waitpid(worker, &status, 0), worker);
  EXPECT_EQ(status, 0);
  EXPECT_EQ((*ledgers)->used_bytes(0, 1000), 0u);
}

TEST(DeviceLedgers, SettingNamesLedgerDescriptors) {
  EXPECT_EQ(DeviceLedgers::setting("memory=1GiB", {4, 9}), "memory=1GiB;ledger=4+9");
  EXPECT_EQ(DeviceLedgers::setting("", {4}), "ledger=4");
}

}  // namespace
}  // namespace gpurun::server
