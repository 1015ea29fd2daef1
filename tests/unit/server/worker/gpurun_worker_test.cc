// gpurun-worker: gpurund starts the real worker on a driver without a device. A client that
// attaches gets the driver's devices, and is served until it leaves.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client/attach/attach.h"
#include "client/control/control_link.h"
#include "client/devices/device_snapshot.h"
#include "driver_abi/row.h"
#include "protocol/control/control.h"
#include "protocol/limits.h"
#include "protocol/log/frame.h"
#include "server/daemon/daemon.h"

namespace gpurun {
namespace {

constexpr std::chrono::seconds kLong{30};

// Compares the worker's own table with one that has one more row, and with one that differs in a
// row.
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

// The arguments of a worker that was started in advance. It ends once it has been prepared.
std::vector<std::string> words_of_worker(bool encrypted) {
  std::string folder = std::filesystem::temp_directory_path() / "gpurun-worker-words-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return {};
  const std::string script = folder + "/worker", told = folder + "/told", fifo = folder + "/end";
  EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const UniqueFd end(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  std::ofstream(script) << "#!/bin/sh\nprintf '%s\\n' \"$@\" > '" << told << "'\nread -r line < '"
                        << fifo << "'\n";
  chmod(script.c_str(), 0700);
  server::ProcessSettings settings;
  settings.worker_path = script;
  settings.driver_path = NULL_DEVICE;
  settings.encrypted = encrypted;
  const auto worker = server::make_process_spawner(settings)->prepare({0});
  EXPECT_TRUE(worker.ok()) << worker.status().to_string();
  EXPECT_EQ(write(end.get(), "\n", 1), 1);
  std::vector<std::string> words;
  if (worker.ok()) {
    pollfd ended = {(*worker)->exit_fd(), POLLIN, 0};
    EXPECT_EQ(poll(&ended, 1, std::chrono::milliseconds(kLong).count()), 1);
    std::ifstream file(told);
    for (std::string word; std::getline(file, word);) words.push_back(word);
  }
  std::filesystem::remove_all(folder);
  return words;
}

// Starting OpenSSL takes a worker as long as all else. A client without TLS must not wait for it. A
// client with TLS must not wait for it during the attach.
TEST(GpurunWorker, SpawnerPassesTlsOptionOnlyForEncryptedSessions) {
  for (const bool encrypted : {false, true}) {
    const std::vector<std::string> words = words_of_worker(encrypted);
    EXPECT_NE(std::find(words.begin(), words.end(), "--driver"), words.end());
    EXPECT_EQ(std::count(words.begin(), words.end(), "--tls"), encrypted ? 1 : 0);
  }
}

// Creates a connection's two ends.
void connect_into(std::unique_ptr<transport::Connection>* ours, server::WorkerOrder* order) {
  auto listener = transport::listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  auto client = transport::connect("tcp://" + (*listener)->address(), Deadline::in(kLong));
  auto accepted = (*listener)->accept(Deadline::in(kLong));
  ASSERT_TRUE(client.ok() && accepted.ok());
  *ours = *std::move(client);
  order->connections.push_back(*std::move(accepted));
}

// The real worker, which starts when the test allows it.
class LateWorker {
 public:
  LateWorker() {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    const std::string fifo = folder_ + "/begin";
    EXPECT_EQ(mkfifo(fifo.c_str(), 0600), 0);
    begin_.reset(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
    std::ofstream(path()) << "#!/bin/sh\nread -r line < '" << fifo << "'\nexec '" << WORKER_PATH
                          << "' \"$@\"\n";
    chmod(path().c_str(), 0700);
  }
  ~LateWorker() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/worker"; }
  // A file that is not a library.
  std::string no_driver() const {
    const std::string file = folder_ + "/libcuda.so.1";
    std::ofstream(file) << "no library";
    return file;
  }
  void begin() const { EXPECT_EQ(write(begin_.get(), "\n", 1), 1); }

 private:
  std::string folder_ = std::filesystem::temp_directory_path() / "gpurun-late-worker-XXXXXX";
  UniqueFd begin_;
};

std::string refusal_on(transport::Connection& log) {
  const auto frame = protocol::receive_control(log, limits::kFrameBytesMax, Deadline::in(kLong));
  if (!frame.ok()) return "no frame: " + frame.status().to_string();
  const auto said = protocol::decode(frame->payload);
  const auto* refused = said.ok() ? std::get_if<protocol::Refused>(&*said) : nullptr;
  return refused == nullptr ? "no refusal" : refused->reason;
}

bool ends(server::Worker& worker) {
  pollfd ended = {worker.exit_fd(), POLLIN, 0};
  return poll(&ended, 1, std::chrono::milliseconds(kLong).count()) == 1;
}

struct Session {
  server::WorkerOrder order;
  std::unique_ptr<transport::Connection> log, bulk;
  Session() {
    connect_into(&log, &order);
    connect_into(&bulk, &order);
  }
};

// A spare worker may have an outdated driver, or find none. Its session must not be lost. Either
// the worker does not take the lease, or it ends before the session and another worker takes the
// connections, or it reports the reason.
TEST(GpurunWorker, SpareWithFailingDriverLosesNoSession) {
  const LateWorker late;
  server::ProcessSettings settings;
  settings.worker_path = late.path();
  for (const auto& [driver, reason] :
       {std::pair(std::string(FAILING_DRIVER),
                  "cuInit failed: 803, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        std::pair(std::string(HEEDLESS_DRIVER), "shows 2 GPUs of 1"),
        std::pair(std::string(OLD_DRIVER),
                  "is a driver for CUDA 12.2; gpurun needs one for CUDA 12.4"),
        std::pair(late.no_driver(), "libcuda.so.1: file too short")}) {
    SCOPED_TRACE(driver);
    settings.driver_path = driver;
    const auto spawner = server::make_process_spawner(settings);
    {
      const auto told_all = spawner->spare();
      ASSERT_TRUE(told_all.ok()) << told_all.status().to_string();
      Session session;
      ASSERT_TRUE((*told_all)->assign({0}, true).ok());
      ASSERT_TRUE((*told_all)->hand_over(session.order).ok());
      late.begin();
      const std::string said = refusal_on(*session.log);
      EXPECT_NE(said.find(reason), std::string::npos) << said;
    }
    const auto ended_first = spawner->spare();
    ASSERT_TRUE(ended_first.ok());
    ASSERT_TRUE((*ended_first)->assign({0}, true).ok());
    late.begin();
    ASSERT_TRUE(ends(**ended_first));
    Session session;
    EXPECT_FALSE((*ended_first)->hand_over(session.order).ok());
    EXPECT_EQ(session.order.connections.size(), 2u);  // For the next worker.
    // This worker waits before it starts. (One that ended before it had started would not receive
    // the message.)
    if (driver != late.no_driver()) continue;
    const auto unmapped = spawner->spare();
    ASSERT_TRUE(unmapped.ok());
    late.begin();
    ASSERT_TRUE(ends(**unmapped));
    EXPECT_FALSE((*unmapped)->assign({0}, true).ok());
  }
}

// Nothing else keeps one lease from the GPUs of another. A worker with a driver that shows more
// GPUs than its lease has serves nobody, whether it waited or not.
TEST(GpurunWorker, RefusesDriverThatShowsExtraGpus) {
  server::ProcessSettings settings;
  settings.worker_path = WORKER_PATH;
  settings.driver_path = HEEDLESS_DRIVER;
  const auto spawner = server::make_process_spawner(settings);
  const auto worker = spawner->prepare({1});
  ASSERT_TRUE(worker.ok());
  Session session;
  ASSERT_TRUE((*worker)->hand_over(session.order).ok());
  const std::string said = refusal_on(*session.log);
  EXPECT_NE(said.find("shows 2 GPUs of 1: it ignores CUDA_VISIBLE_DEVICES"), std::string::npos)
      << said;
  EXPECT_TRUE(ends(**worker));
  EXPECT_EQ((*worker)->how_it_failed(), "exit status 1");
  const auto of_both = spawner->prepare({0, 1});
  ASSERT_TRUE(of_both.ok());
  Session other;
  ASSERT_TRUE((*of_both)->hand_over(other.order).ok());
  const std::string otherwise = refusal_on(*other.log);  // Its lease has both.
  EXPECT_EQ(otherwise.find("GPUs"), std::string::npos) << otherwise;
}

// The value of a line of /proc.
std::string line_of(const std::string& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
  }
  return {};
}

// Only inside TLS can it report the failure. It must first read from an unknown client, and is
// confined as usual while it does.
TEST(GpurunWorker, StaysConfinedWhenDriverFails) {
  const LateWorker late;
  server::ProcessSettings settings;
  settings.worker_path = WORKER_PATH;
  settings.driver_path = NULL_DEVICE;
  const auto facts = server::find_devices(settings, Deadline::in(kLong));
  ASSERT_TRUE(facts.ok()) << facts.status().to_string();
  if (facts->confinement.find("system-calls") == std::string::npos) {
    GTEST_SKIP() << "workers are not confined here";
  }
  settings.worker_path = late.path();
  for (const std::string& driver : {std::string(FAILING_DRIVER), late.no_driver()}) {
    SCOPED_TRACE(driver);
    settings.driver_path = driver;
    const auto worker = server::make_process_spawner(settings)->spare();
    ASSERT_TRUE(worker.ok());
    Session session;
    session.order.encrypted = true;
    ASSERT_TRUE((*worker)->assign({0}, true).ok());
    ASSERT_TRUE((*worker)->hand_over(session.order).ok());
    const std::string process =
        line_of("/proc/self/fdinfo/" + std::to_string((*worker)->exit_fd()), "Pid");
    late.begin();
    // It waits for the handshake, which this client does not begin, and ends at the deadline.
    pollfd ended = {(*worker)->exit_fd(), POLLIN, 0};
    std::string filtered;
    while (filtered != "2" && poll(&ended, 1, 0) == 0) {
      filtered = line_of("/proc/" + process + "/status", "Seccomp");
    }
    EXPECT_EQ(filtered, "2");
  }
}

TEST(GpurunWorker, ReportsDevicesAndServesCallPath) {
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
    EXPECT_EQ(attached->features, protocol::our_features(protocol::Sender::kServer).offered &
                                      protocol::our_features(protocol::Sender::kClient).offered);
    const auto snapshot = client::DeviceSnapshot::parse(attached->snapshot, nullptr);
    EXPECT_TRUE(snapshot.ok()) << snapshot.status().to_string();
    EXPECT_GT(snapshot->device_count(), 0);
    // The worker's heartbeats are frames of the call path.
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
