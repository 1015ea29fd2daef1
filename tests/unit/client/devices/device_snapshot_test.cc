// DeviceSnapshot: a program's view of its devices. It is the server's description without what
// cannot hold over a wire, and only for the devices that CUDA_VISIBLE_DEVICES leaves.
#include "client/devices/device_snapshot.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/driver_release.h"
#include "protocol/calls/snapshot.capnp.h"

namespace gpurun::client {
namespace {

Bytes encoded(capnp::MallocMessageBuilder& builder) {
  const auto words = capnp::messageToFlatArray(builder);
  const ByteView view = byte_view(words.asBytes().begin(), words.asBytes().size());
  return Bytes(view.begin(), view.end());
}

Bytes snapshot_of(unsigned device_count) {
  capnp::MallocMessageBuilder builder;
  auto snapshot = builder.initRoot<protocol::wire::Snapshot>();
  snapshot.setDriverVersion(13000);
  snapshot.setDriverRelease("550.54.15");
  auto devices = snapshot.initDevices(device_count);
  for (unsigned i = 0; i < device_count; ++i) {
    devices[i].setName("device");
    auto uuid = devices[i].initUuid(16);
    uuid[0] = static_cast<kj::byte>(i);
    auto attributes = devices[i].initAttributes(3);
    attributes[0].setId(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
    attributes[0].setValue(32);
    attributes[1].setId(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    attributes[1].setValue(1);
    attributes[2].setId(100'000);
    attributes[2].setValue(1);
  }
  return encoded(builder);
}

std::vector<int> left(const char* visible) {
  const auto snapshot = DeviceSnapshot::parse(snapshot_of(4), visible);
  std::vector<int> ordinals;
  for (int i = 0; i < snapshot->device_count(); ++i) {
    ordinals.push_back(snapshot->device(i)->server_ordinal);
  }
  return ordinals;
}

TEST(DeviceSnapshot, AttributesMatchServerUnlessMasked) {
  const auto snapshot = DeviceSnapshot::parse(snapshot_of(1), nullptr);
  ASSERT_TRUE(snapshot.ok());
  const Device* device = snapshot->device(0);
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  EXPECT_EQ(device->attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 0);
  EXPECT_FALSE(device->attributes[CU_DEVICE_ATTRIBUTE_MAX_PITCH].has_value());
  EXPECT_EQ(snapshot->device(1), nullptr);
  EXPECT_EQ(snapshot->device(-1), nullptr);
}

TEST(DeviceSnapshot, SharingByDescriptorsIsReportedIfBothEndsHaveIt) {
  capnp::MallocMessageBuilder builder;
  auto device = builder.initRoot<protocol::wire::Snapshot>().initDevices(1)[0];
  constexpr int kId = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
  auto attributes = device.initAttributes(2);
  auto attribute = attributes[0];
  attribute.setId(kId);
  constexpr int kOfPools = CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES;
  attributes[1].setId(kOfPools);
  const auto flat = [&builder] { return capnp::messageToFlatArray(builder); };
  for (const int of_server : {0, 1}) {
    attribute.setValue(of_server);
    attributes[1].setValue(of_server | CU_MEM_HANDLE_TYPE_FABRIC);
    const auto words = flat();
    const ByteView bytes = byte_view(words.asBytes().begin(), words.asBytes().size());
    for (const bool shared : {false, true}) {
      SharedPages pages;
      pages.descriptors = shared;
      const auto parsed = DeviceSnapshot::parse(bytes, nullptr, pages);
      ASSERT_TRUE(parsed.ok());
      EXPECT_EQ(parsed->device(0)->attribute(kId), shared ? of_server : 0);
      EXPECT_EQ(parsed->device(0)->attribute(kOfPools), shared ? of_server : 0);
    }
  }
}

TEST(DeviceSnapshot, VisibleDevicesAreFilteredAndOrdered) {
  EXPECT_THAT(left(nullptr), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(left(""), testing::IsEmpty());
  EXPECT_THAT(left("2,0"), testing::ElementsAre(2, 0));
  EXPECT_THAT(left("1,-1,2"), testing::ElementsAre(1));
  EXPECT_THAT(left("1,9,2"), testing::ElementsAre(1));
  EXPECT_THAT(left("1,1"), testing::IsEmpty());
  EXPECT_THAT(left("GPU-03000000,0"), testing::ElementsAre(3, 0));
  EXPECT_THAT(left("GPU-0"), testing::IsEmpty());  // Not unique.
}

// NVML returns it, and programs parse it.
TEST(DeviceSnapshot, InvalidDriverReleaseFallsBackToDefault) {
  const auto release_of = [](const char* told) {
    capnp::MallocMessageBuilder builder;
    auto snapshot = builder.initRoot<protocol::wire::Snapshot>();
    snapshot.setDriverVersion(13000);
    snapshot.setDriverRelease(told);
    const auto flat = capnp::messageToFlatArray(builder);
    const auto bytes = flat.asBytes();
    return DeviceSnapshot::parse(byte_view(bytes.begin(), bytes.size()), nullptr)->driver_release();
  };
  EXPECT_EQ(release_of("550.54.15"), "550.54.15");
  // A server that sends no release, and strings that are not versions.
  for (const char* none : {"", "13.0.0 (gpurun)", "580", ".1", "1.", "1..2", "5\n1.2",
                           "1.234567890123456789012345678901234"}) {
    EXPECT_EQ(release_of(none), "580.95.05") << none;
  }
}

TEST(DeviceSnapshot, TopologyIsTheServersForVisibleDevices) {
  capnp::MallocMessageBuilder builder;
  auto snapshot = builder.initRoot<protocol::wire::Snapshot>();
  auto devices = snapshot.initDevices(3);
  for (unsigned i = 0; i < 3; ++i) devices[i].initUuid(16)[0] = static_cast<kj::byte>(i);
  auto peers = snapshot.initPeers(6);
  // 0 and 1 share a switch, 0 and 2 a host bridge, and 1 and 2 are not known.
  const int kPairs[][3] = {{0, 1, 11}, {1, 0, 11}, {0, 2, 31}, {2, 0, 31}, {1, 2, 0}, {2, 1, 7}};
  for (unsigned i = 0; i < 6; ++i) {
    peers[i].setDevice(kPairs[i][0]);
    peers[i].setOther(kPairs[i][1]);
    peers[i].setTopology(static_cast<std::uint8_t>(kPairs[i][2]));
  }
  const Bytes message = encoded(builder);
  const auto all = DeviceSnapshot::parse(message, nullptr);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->topology_level(0, 0), 0);
  EXPECT_EQ(all->topology_level(0, 1), 10);
  EXPECT_EQ(all->topology_level(2, 0), 30);
  EXPECT_EQ(all->topology_level(1, 2), std::nullopt);
  EXPECT_EQ(all->topology_level(2, 1), std::nullopt);  // A level that NVML does not have.
  EXPECT_EQ(all->topology_level(0, 3), std::nullopt);
  EXPECT_EQ(all->topology_level(3, 3), std::nullopt);
  const auto two = DeviceSnapshot::parse(message, "2,0");
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two->topology_level(0, 1), 30);
}

// The bounds against a hostile server must leave room for the largest honest one.
TEST(DeviceSnapshot, ParsesServerWithManyDevices) {
  constexpr unsigned kDevices = 64;
  capnp::MallocMessageBuilder builder;
  auto snapshot = builder.initRoot<protocol::wire::Snapshot>();
  auto devices = snapshot.initDevices(kDevices);
  for (auto device : devices) {
    device.setName("device");
    device.initUuid(16);
    device.initUuidV2(16);
    device.setPciBusId("0000:01:00.0");
    device.initAttributes(150);
  }
  auto peers = snapshot.initPeers(kDevices * (kDevices - 1));
  for (auto peer : peers) peer.initAttributes(5);
  const auto flat = capnp::messageToFlatArray(builder);
  const auto parsed =
      DeviceSnapshot::parse(byte_view(flat.asBytes().begin(), flat.asBytes().size()), nullptr);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->device_count(), static_cast<int>(kDevices));
}

// A list of empty structures is as short with a million of them.
TEST(DeviceSnapshot, RejectsHugeListInFewBytes) {
  capnp::MallocMessageBuilder builder;
  auto snapshot = builder.initRoot<protocol::wire::Snapshot>();
  auto raw = capnp::toAny(snapshot).getPointerSection()[1];  // peers
  raw.initAsListOfAnyStruct(0, 0, 1u << 24);
  const auto flat = capnp::messageToFlatArray(builder);
  const ByteView bytes = byte_view(flat.asBytes().begin(), flat.asBytes().size());
  EXPECT_LT(bytes.size(), 1000u);
  EXPECT_EQ(DeviceSnapshot::parse(bytes, nullptr).status().code(), Code::kProtocol);
}

TEST(DeviceSnapshot, SurvivesTruncatedSnapshot) {
  const Bytes good = snapshot_of(2);
  // The last word may be padding.
  for (std::size_t length = 0; length + 8 <= good.size(); ++length) {
    const auto cut = DeviceSnapshot::parse(ByteView(good).first(length), nullptr);
    EXPECT_EQ(cut.status().code(), Code::kProtocol) << length;
  }
}

// What a program asks of any parsed snapshot must be answered within its own bounds.
void expect_sound(const DeviceSnapshot& snapshot) {
  EXPECT_LE(snapshot.device_count(), 64);
  EXPECT_TRUE(driver_abi::is_driver_release(snapshot.driver_release()));
  for (int i = 0; i < snapshot.device_count(); ++i) {
    const Device* const device = snapshot.device(i);
    ASSERT_NE(device, nullptr);
    EXPECT_GE(device->server_ordinal, 0);
    EXPECT_LT(device->server_ordinal, 64);
    EXPECT_EQ(device->attributes.size(), static_cast<std::size_t>(CU_DEVICE_ATTRIBUTE_MAX));
    EXPECT_EQ(device->attribute(CU_DEVICE_ATTRIBUTE_MAX), 0);
    EXPECT_EQ(device->attribute(-1), 0);
    (void)snapshot.peer_attribute(i, 0, 1);
  }
}

TEST(DeviceSnapshot, FlippedBitGivesErrorOrSoundSnapshot) {
  const Bytes good = snapshot_of(2);
  int rejected = 0;
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes wrong = good;
    wrong[bit / 8] ^= std::byte{1} << (bit % 8);
    SCOPED_TRACE(bit);
    const auto parsed = DeviceSnapshot::parse(wrong, nullptr);
    if (parsed.ok()) {
      expect_sound(*parsed);
    } else {
      EXPECT_EQ(parsed.status().code(), Code::kProtocol);
      ++rejected;
    }
  }
  EXPECT_GT(rejected, 0) << "some bits are lengths and places";
}

TEST(DeviceSnapshot, ImpossibleDriverVersionGivesReleaseThatProgramsCanParse) {
  for (const int version :
       {0, -1, 1, 999'999, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    capnp::MallocMessageBuilder builder;
    builder.initRoot<protocol::wire::Snapshot>().setDriverVersion(version);
    const auto parsed = DeviceSnapshot::parse(encoded(builder), nullptr);
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(parsed->driver_version(), version);
    EXPECT_TRUE(driver_abi::is_driver_release(parsed->driver_release())) << version;
  }
}

TEST(DeviceSnapshot, RejectsTooManyDevices) {
  EXPECT_EQ(DeviceSnapshot::parse(snapshot_of(64), nullptr)->device_count(), 64);
  EXPECT_EQ(DeviceSnapshot::parse(snapshot_of(65), nullptr).status().code(), Code::kProtocol);
}

// An identity of another length, and attributes that no device has.
TEST(DeviceSnapshot, IgnoresWhatDoesNotFit) {
  capnp::MallocMessageBuilder builder;
  auto devices = builder.initRoot<protocol::wire::Snapshot>().initDevices(2);
  for (auto& byte : devices[0].initUuid(40)) byte = 7;
  devices[1].initUuid(3)[0] = 9;
  constexpr int kIds[] = {-1, 0, CU_DEVICE_ATTRIBUTE_MAX, 1 << 30, CU_DEVICE_ATTRIBUTE_WARP_SIZE};
  auto attributes = devices[0].initAttributes(std::size(kIds));
  for (unsigned i = 0; i < std::size(kIds); ++i) {
    attributes[i].setId(kIds[i]);
    attributes[i].setValue(32);
  }
  const auto parsed = DeviceSnapshot::parse(encoded(builder), nullptr);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  expect_sound(*parsed);
  EXPECT_THAT(parsed->device(0)->uuid, testing::Each(7));
  EXPECT_EQ(parsed->device(1)->uuid[0], 9);
  EXPECT_EQ(parsed->device(1)->uuid[3], 0);
  EXPECT_EQ(parsed->device(0)->attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  const auto& known = parsed->device(0)->attributes;
  EXPECT_EQ(
      std::count_if(known.begin(), known.end(), [](const auto& of) { return of.has_value(); }), 1);
}

}  // namespace
}  // namespace gpurun::client
