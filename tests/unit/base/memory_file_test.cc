// Protects what other processes may do with a memory file: exec() closes it, and only a sealable
// one takes seals.
#include "base/memory_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace gpurun {
namespace {

TEST(MemoryFile, IsEmptyAndClosedByExec) {
  const Result<UniqueFd> file = create_memory_file("test");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(lseek(file->get(), 0, SEEK_END), 0);
  EXPECT_EQ(fcntl(file->get(), F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(fcntl(file->get(), F_ADD_SEALS, F_SEAL_SHRINK), -1);
}

TEST(MemoryFile, SealsKeepTheSize) {
  const Result<UniqueFd> file = create_sealable_memory_file("test");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(fcntl(file->get(), F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(ftruncate(file->get(), 4096), 0);
  ASSERT_EQ(fcntl(file->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(ftruncate(file->get(), 0), -1);
  EXPECT_EQ(ftruncate(file->get(), 8192), -1);
}

}  // namespace
}  // namespace gpurun
