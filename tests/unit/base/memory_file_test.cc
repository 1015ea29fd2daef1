// Protects what other processes may do with a memory file: exec() closes it, and only a sealable
// one takes seals. Protects a process with a limit of file sizes.
#include "base/memory_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
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

// Beyond the limit ftruncate() would end this process by SIGXFSZ.
TEST(MemoryFile, LimitOfFileSizesIsAnError) {
  const Result<UniqueFd> file = create_memory_file("test");
  ASSERT_TRUE(file.ok()) << file.status().message();
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  EXPECT_TRUE(size_memory_file(file->get(), 4096).ok());
  EXPECT_EQ(size_memory_file(file->get(), 4097).code(), Code::kResourceExhausted);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(lseek(file->get(), 0, SEEK_END), 4096);
}

}  // namespace
}  // namespace gpurun
