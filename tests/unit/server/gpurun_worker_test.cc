// Protects the whole way in: gpurund starts the real gpurun-worker on a driver without a device,
// and a client that attaches is told of the driver's devices and then served, until it leaves.
#include <gtest/gtest.h>

#include <thread>

#include "client/attach.h"
#include "client/control_link.h"
#include "client/device_snapshot.h"
#include "driver_abi/row.h"
#include "protocol/frame.h"
#include "server/daemon/daemon.h"

namespace gpurun {
namespace {

constexpr std::chrono::seconds kLong{30};

// The worker's own table against one that is a row longer, and one that differs in a row.
void expect_told_of_other_rows(const client::SessionData& session) {
  std::vector<driver_abi::Row> rows(driver_abi::rows().begin(), driver_abi::rows().end());
  driver_abi::Row added = rows.back();
  added.symbol = "cuOfTomorrow";
  added.completion = driver_abi::Completion::kFence;
  added.opcode = added.alias_opcode = static_cast<std::uint16_t>(rows.size() + 1);
  rows.push_back(added);
  client::AttachOptions options;
  options.rows = rows;
  const auto longer = client::attach(session, options);
  EXPECT_TRUE(longer.ok()) << longer.status().to_string();
  if (longer.ok()) {
    EXPECT_EQ(longer->lacking, std::vector<std::uint16_t>{added.opcode});
  }
  driver_abi::Row& init = rows[driver_abi::find_row("cuInit")->opcode - std::size_t{1}];
  init.hash ^= 1;
  const auto other = client::attach(session, options);
  EXPECT_EQ(other.status().code(), Code::kRefused);
  EXPECT_NE(other.status().message().find("cuInit"), std::string::npos)
      << other.status().to_string();
}

TEST(GpurunWorker, TellsItsDevicesAndSpeaksTheCallPath) {
  server::ProcessSettings settings;
  settings.worker_path = WORKER_PATH;
  settings.driver_path = NULL_DEVICE;
  const auto facts = server::find_devices(settings, Deadline::in(kLong));
  ASSERT_TRUE(facts.ok()) << facts.status().to_string();
  const std::vector<server::DeviceFacts>* devices = &facts->devices;
  ASSERT_GT(devices->size(), 0u);
  EXPECT_FALSE(devices->front().name.empty());
  EXPECT_GT(devices->front().memory_bytes, 0u);
  const auto spawner = server::make_process_spawner(settings);
  server::DaemonOptions options;
  options.devices = static_cast<unsigned>(devices->size());
  auto listener = transport::listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  auto daemon = server::Daemon::create(*std::move(listener), std::move(options), *spawner);
  ASSERT_TRUE(daemon.ok());
  std::thread serving([&] { EXPECT_TRUE((*daemon)->run().ok()); });

  auto link = client::ControlLink::connect((*daemon)->address(), {}, Deadline::in(kLong));
  ASSERT_TRUE(link.ok());
  client::LeaseRequest request;
  request.devices = 1;
  const auto session = (*link)->request_lease(request);
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  auto attached = client::attach(*session, {});
  EXPECT_TRUE(attached.ok()) << attached.status().to_string();
  if (attached.ok()) {
    EXPECT_GT(attached->driver_version, 0);
    EXPECT_TRUE(attached->lacking.empty());
    EXPECT_EQ(attached->features, protocol::our_features(protocol::Sender::kServer).offered);
    const auto snapshot = client::DeviceSnapshot::parse(attached->snapshot, nullptr);
    EXPECT_TRUE(snapshot.ok()) << snapshot.status().to_string();
    EXPECT_GT(snapshot->device_count(), 0);
    // The worker's life signs are frames of the call path.
    std::byte head[protocol::kFrameHeaderBytes];
    const auto got = attached->channels.log->receive(head, sizeof head, Deadline::in(kLong));
    EXPECT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_TRUE(protocol::parse_frame_header(head).ok());
  }
  expect_told_of_other_rows(*session);
  (*daemon)->stop();
  serving.join();
}

}  // namespace
}  // namespace gpurun
