// Descriptor mark: it stays on the open file, whatever number that gets, and is on no other file.
#include "base/descriptor_mark.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace gpurun {
namespace {

struct Pair {
  Pair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    first.reset(ends[0]);
    second.reset(ends[1]);
  }
  UniqueFd first, second;
};

TEST(DescriptorMark, FollowsOpenFileAndNotDescriptorNumber) {
  const Pair pair;
  const DescriptorMark mark = DescriptorMark::put(pair.first.get());
  ASSERT_TRUE(mark.is_there());
  EXPECT_TRUE(mark.holds(pair.first.get()));
  EXPECT_FALSE(mark.holds(pair.second.get()));
  const UniqueFd elsewhere(dup(pair.first.get()));
  EXPECT_TRUE(mark.holds(elsewhere.get()));
  ASSERT_EQ(dup2(pair.second.get(), pair.first.get()), pair.first.get());
  EXPECT_FALSE(mark.holds(pair.first.get()));
}

TEST(DescriptorMark, DoesNotMatchOtherMarkedFile) {
  const Pair one, other;
  const DescriptorMark mark = DescriptorMark::put(one.first.get());
  ASSERT_TRUE(DescriptorMark::put(other.first.get()).is_there());
  EXPECT_FALSE(mark.holds(other.first.get()));
}

TEST(DescriptorMark, EmptyMarkMatchesNothing) {
  const Pair pair;
  EXPECT_FALSE(DescriptorMark().is_there());
  EXPECT_FALSE(DescriptorMark().holds(pair.first.get()));
  int number = -1;
  {
    const Pair gone;
    number = gone.first.get();
  }
  errno = 7;
  EXPECT_FALSE(DescriptorMark::put(number).is_there());
  EXPECT_FALSE(DescriptorMark::put(pair.first.get()).holds(number));
  EXPECT_EQ(errno, 7);
}

}  // namespace
}  // namespace gpurun
