// Copy answers: a copy to the device reads its source at the time that CUDA allows, and returns
// early only if nothing can notice. Small fills and copies are quiet work.
#include "client/early_answers/copy_answers.h"

#include <gtest/gtest.h>

#include "client/early_answers/quiet_work.h"

namespace gpurun::client {
namespace {

constexpr std::uint64_t kKiB = 1024;

SourceReading chosen(Waiting waiting, std::uint64_t bytes, bool stays, bool written) {
  return choose_reading(waiting, {bytes, stays, written});
}

TEST(CopyAnswers, PinnedSourceWaitsForItsTurnOnlyBehindEarlierWrites) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, 33 * kKiB}) {
    const SourceReading reading = chosen(Waiting::kAsynchronous, bytes, true, true);
    EXPECT_EQ(reading.when, CopyReading::kInTurn);
    EXPECT_FALSE(reading.wait_first) << "the call must not wait for the stream";
  }
  EXPECT_EQ(chosen(Waiting::kAsynchronous, 32 * kKiB, true, false).when, CopyReading::kNow);
  EXPECT_EQ(chosen(Waiting::kAsynchronous, 32 * kKiB + 1, true, false).when, CopyReading::kSoon);
}

TEST(CopyAnswers, SourceThatIsTheProgramsAgainIsReadBeforeTheReturn) {
  for (const Waiting waiting : {Waiting::kSynchronous, Waiting::kAsynchronous}) {
    const SourceReading reading = chosen(waiting, 1024 * kKiB, false, false);
    EXPECT_EQ(reading.when, CopyReading::kNow);
    EXPECT_FALSE(reading.wait_first);
    EXPECT_TRUE(chosen(waiting, 1024 * kKiB, false, true).wait_first) << "earlier work writes it";
  }
}

// The driver stages a small pageable source at once, before earlier work of the stream.
TEST(CopyAnswers, SmallPageableSourceIsStagedAtOnce) {
  EXPECT_FALSE(chosen(Waiting::kAsynchronous, 64 * kKiB, false, true).wait_first);
  EXPECT_TRUE(chosen(Waiting::kAsynchronous, 64 * kKiB + 1, false, true).wait_first);
  EXPECT_TRUE(chosen(Waiting::kSynchronous, 1, false, true).wait_first);
}

TEST(CopyAnswers, PromiseOfNoEarlierWritesIsTaken) {
  for (const bool stays : {false, true}) {
    const SourceReading reading = chosen(Waiting::kReadNow, 1024 * kKiB, stays, true);
    EXPECT_EQ(reading.when, CopyReading::kNow);
    EXPECT_FALSE(reading.wait_first);
  }
}

TEST(CopyAnswers, CopyReturnsEarlyOnlyIntoMemoryThatEndsBehindIt) {
  EXPECT_TRUE(may_copy_early(true, MemoryEnd::kBehindWork));
  EXPECT_TRUE(may_copy_early(true, MemoryEnd::kUnloaded));
  EXPECT_FALSE(may_copy_early(true, MemoryEnd::kUnknown));
  EXPECT_FALSE(may_copy_early(false, MemoryEnd::kBehindWork));
}

TEST(QuietWork, OnlySmallWorkThatItsMemoryOutlivesIsQuiet) {
  EXPECT_EQ(work_of_copy(kQuietCopyBytesMax, MemoryEnd::kBehindWork), Work::kQuiet);
  EXPECT_EQ(work_of_copy(kQuietCopyBytesMax + 1, MemoryEnd::kBehindWork), Work::kAny);
  EXPECT_EQ(work_of_fill(kQuietFillBytesMax, MemoryEnd::kBehindWork), Work::kQuiet);
  EXPECT_EQ(work_of_fill(kQuietFillBytesMax + 1, MemoryEnd::kBehindWork), Work::kAny);
  for (const MemoryEnd end : {MemoryEnd::kUnknown, MemoryEnd::kUnloaded}) {
    EXPECT_EQ(work_of_copy(1, end), Work::kAny);
    EXPECT_EQ(work_of_fill(1, end), Work::kAny);
  }
}

}  // namespace
}  // namespace gpurun::client
