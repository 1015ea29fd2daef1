// CUDA_VISIBLE_DEVICES: read in one way, which the client library and the emulated device share.
#include "driver_abi/semantics/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpurun::driver_abi {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// The UUIDs of devices 0 and 1 have a common beginning, that of device 2 differs.
std::vector<int> left(const char* value) {
  const std::vector<DeviceUuid> devices = {{0x3f, 0x01}, {0x3f, 0x02}, {0x40}};
  return visible_devices(value, devices);
}

TEST(VisibleDevices, NumbersSelectAndOrderDevices) {
  EXPECT_THAT(left(nullptr), ElementsAre(0, 1, 2));
  EXPECT_THAT(left("2,0"), ElementsAre(2, 0));
  EXPECT_THAT(left(" 2 ,\t0"), ElementsAre(2, 0));
  EXPECT_THAT(left("2,"), ElementsAre(2));
}

TEST(VisibleDevices, ListEndsAtInvalidEntry) {
  for (const char* none : {"", "-1,0", "3,0", ",0", "x", "NoDevFiles", "MIG-3f", "GPU-", "GPU-5"}) {
    EXPECT_THAT(left(none), IsEmpty()) << none;
  }
  EXPECT_THAT(left("1,-1,2"), ElementsAre(1));
  EXPECT_THAT(left("1,99999999999999999999,2"), ElementsAre(1));
  EXPECT_THAT(left("0,MIG-3f,2"), ElementsAre(0));
}

TEST(VisibleDevices, TextAfterDigitsIsIgnored) {
  EXPECT_THAT(left("2nd,+1"), ElementsAre(2, 1));
  EXPECT_THAT(left("0x1,1;2"), ElementsAre(0, 1));
}

TEST(VisibleDevices, UniqueUuidPrefixSelectsDevice) {
  EXPECT_THAT(left("GPU-4,GPU-3f02"), ElementsAre(2, 1));
  EXPECT_THAT(left("GPU-40000000-0000-0000-0000-000000000000"), ElementsAre(2));
  EXPECT_THAT(left("2,GPU-3f,0"), ElementsAre(2));
}

TEST(VisibleDevices, DuplicateDeviceHidesAllDevices) {
  EXPECT_THAT(left("1,0,1"), IsEmpty());
  EXPECT_THAT(left("2,GPU-40"), IsEmpty());
}

TEST(VisibleDevices, FirstVisibleKeepsLeadingEntries) {
  EXPECT_EQ(first_visible("2,1,0", 1), "2");
  EXPECT_EQ(first_visible("2,1,0", 2), "2,1");
  EXPECT_EQ(first_visible("2,1,0", 3), "2,1,0");
  EXPECT_EQ(first_visible("GPU-4,1", 1), "GPU-4");
  EXPECT_EQ(first_visible("", 1), "");
  // These lists stay whole: a part would leave a device where the whole list leaves none.
  EXPECT_EQ(first_visible("1,1", 1), "1,1");
  EXPECT_EQ(first_visible("0,1,0", 2), "0,1,0");
  EXPECT_EQ(first_visible("GPU-4,GPU-4", 1), "GPU-4,GPU-4");
}

}  // namespace
}  // namespace gpurun::driver_abi
