// Protects the hand-over of the emulated devices' ledgers: no worker leaves anything in one, not
// even one that means ill, and its environment says where they are.
#include "server/daemon/device_ledgers.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace gpurun::server {
namespace {

struct flock whole(short type) {
  struct flock lock {};
  lock.l_type = type;
  return lock;
}

TEST(DeviceLedgers, WhatAWorkerDoesWithItsDescriptorEndsWithIt) {
  const auto ledgers = DeviceLedgers::create(2);
  ASSERT_TRUE(ledgers.ok()) << ledgers.status().to_string();
  Result<UniqueFd> first = (*ledgers)->open(1);
  const Result<UniqueFd> second = (*ledgers)->open(1);
  ASSERT_TRUE(first.ok() && second.ok());
  // The kind of lock that lives as long as any copy of the descriptor.
  struct flock taken = whole(F_WRLCK);
  ASSERT_EQ(fcntl(first->get(), F_OFD_SETLK, &taken), 0);
  struct flock seen = whole(F_WRLCK);
  ASSERT_EQ(fcntl(second->get(), F_OFD_GETLK, &seen), 0);
  EXPECT_EQ(seen.l_type, F_WRLCK);
  first->reset();
  seen = whole(F_WRLCK);
  ASSERT_EQ(fcntl(second->get(), F_OFD_GETLK, &seen), 0);
  EXPECT_EQ(seen.l_type, F_UNLCK);
  // Nor can it keep bytes for those who come after it.
  EXPECT_EQ(write(second->get(), "x", 1), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(ftruncate(second->get(), 4096), 0);
}

TEST(DeviceLedgers, EachDeviceHasItsOwn) {
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

TEST(DeviceLedgers, TheEnvironmentSaysWhereTheyAre) {
  EXPECT_EQ(DeviceLedgers::setting("memory=1GiB", {4, 9}), "memory=1GiB;ledger=4+9");
  EXPECT_EQ(DeviceLedgers::setting("", {4}), "ledger=4");
}

}  // namespace
}  // namespace gpurun::server
