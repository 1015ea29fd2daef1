// gpurund's admission: which clients may lease and attach, which wait, which are refused, and that
// no GPU has two owners. The daemon runs in this process, over TCP, with workers that are not
// processes.
#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "tests/unit/server/daemon/daemon_under_test.h"

namespace gpurun::server {
namespace {

// A row that is sent, and that has no alias.
driver_abi::Row own_row(const std::vector<driver_abi::Row>& rows) {
  for (const driver_abi::Row& row : rows) {
    const auto users = std::count_if(rows.begin(), rows.end(), [&](const auto& other) {
      return other.alias_opcode == row.opcode;
    });
    if (users == 1 && row.alias_opcode == row.opcode &&
        row.completion == driver_abi::Completion::kAsync) {
      return row;
    }
  }
  ADD_FAILURE() << "the table has no such row";
  return {};
}

TEST_F(DaemonTest, LeaseLetsProcessesAttach) {
  start(2);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_EQ(session->device_count, 1u);
  EXPECT_EQ(session->servers, std::vector<std::string>{daemon_->address()});
  for (int process = 0; process < 2; ++process) {
    client::AttachOptions options;
    options.bulk_connections = 2;
    auto attached = client::attach(*session, options);
    ASSERT_TRUE(attached.ok()) << attached.status().to_string();
    EXPECT_EQ(attached->snapshot.size(), 100u);
    EXPECT_EQ(attached->driver_version, 13000);
    EXPECT_EQ(attached->lacking, std::vector<std::uint16_t>{});
    EXPECT_EQ(attached->channels.bulk.size(), 2u);
    // The worker has the connections in order, and nothing was read beyond the hello.
    const std::lock_guard lock(workers_.mutex);
    ASSERT_EQ(workers_.connections.size(), 3u);
    EXPECT_EQ(workers_.devices, std::vector<int>{0});
    EXPECT_EQ(workers_.rows_told, 0u);
    for (int index = 0; index < 3; ++index) {
      auto& near = index == 0 ? attached->channels.log : attached->channels.bulk[index - 1];
      const std::byte sent = static_cast<std::byte>(index + 40);
      const ByteView part(&sent, 1);
      ASSERT_TRUE(near->send({&part, 1}, soon()).ok());
      std::byte got{};
      ASSERT_TRUE(workers_.connections[index]->receive({&got, 1}, 1, soon()).ok());
      EXPECT_EQ(got, sent);
    }
  }
  EXPECT_TRUE(control->lease_ended().ok());
}

// A lease's first worker starts with the lease, and the first session gets it. Before that it
// serves no session. It ends with the lease if no session comes.
TEST_F(DaemonTest, FirstSessionGetsPreparedWorker) {
  workers_.prepares = true;
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  ASSERT_TRUE(workers_.wait([&] { return workers_.prepared == 1; }));
  EXPECT_EQ(workers_.devices, std::vector<int>{0});
  const auto workers_told = [&] {
    const auto listing = link()->list();
    EXPECT_TRUE(listing.ok());
    return listing.ok() ? listing->workers : 99u;
  };
  EXPECT_EQ(workers_told(), 0u);
  std::vector<client::Attached> attached;
  for (int process = 1; process <= 2; ++process) {
    auto result = client::attach(*session, {});
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    attached.push_back(*std::move(result));
    const std::lock_guard lock(workers_.mutex);
    EXPECT_EQ(workers_.started, process);
    EXPECT_EQ(workers_.handed_over, 1);
    EXPECT_EQ(workers_.prepared, 1);
  }
  EXPECT_TRUE(control->lease_ended().ok());
  control.reset();
  ASSERT_TRUE(workers_.wait([&] { return workers_.killed == 2; }));
  // Its GPU is free for the next lease, which never attaches. The worker then goes unused.
  control = link();
  ASSERT_TRUE(control->request_lease(ask(1, kLong)).ok());
  ASSERT_TRUE(workers_.wait([&] { return workers_.prepared == 2; }));
  end_lease(*control);
  const std::lock_guard lock(workers_.mutex);
  EXPECT_EQ(workers_.killed, 3);
  EXPECT_EQ(workers_.started, 2);
}

TEST_F(DaemonTest, PreparedWorkerThatDiesIsReplacedSilently) {
  workers_.prepares = true;
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  ASSERT_TRUE(workers_.wait([&] { return workers_.prepared == 1; }));
  {
    const std::lock_guard lock(workers_.mutex);
    eventfd_write(workers_.waiting, 1);
  }
  const auto attached = client::attach(*session, {});
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  const std::lock_guard lock(workers_.mutex);
  EXPECT_EQ(workers_.started, 1);
  EXPECT_EQ(workers_.handed_over, 0);
  EXPECT_TRUE(control->lease_ended().ok());
  EXPECT_TRUE(control->take_worker_deaths().empty());
}

TEST_F(DaemonTest, WrongSecretIsRefused) {
  start(1);
  for (const Bytes& wrong : {Bytes(), Bytes(16, std::byte{0x5b})}) {
    const auto session = link(wrong)->request_lease(ask(1));
    EXPECT_EQ(session.status().code(), Code::kRefused) << session.status().to_string();
    EXPECT_NE(session.status().message().find("secret is wrong"), std::string::npos);
  }
  EXPECT_TRUE(link()->request_lease(ask(1)).ok());
}

TEST_F(DaemonTest, RequestForUnavailableGpusIsRefused) {
  start(2);
  EXPECT_EQ(link()->request_lease(ask(3, kLong)).status().code(), Code::kRefused);
  EXPECT_EQ(link()->request_lease(ask(0, kLong)).status().code(), Code::kRefused);
  auto holder = link();
  ASSERT_TRUE(holder->request_lease(ask(2)).ok());
  EXPECT_EQ(link()->request_lease(ask(1)).status().code(), Code::kRefused);
  EXPECT_EQ(link()->request_lease(ask(1, milliseconds(20))).status().code(), Code::kRefused);
}

TEST_F(DaemonTest, QueuedRequestIsServedAfterWorkerExits) {
  start(1);
  workers_.linger = true;
  auto first = link();
  const auto session = first->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  const auto attached = client::attach(*session, {});
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  auto second = link();
  auto request = ask(1, kLong);
  std::atomic<bool> served{false};
  std::promise<unsigned> queued;
  request.on_queued = [&queued](const protocol::Queued& place, bool) {
    queued.set_value(place.ahead);
  };
  std::thread waiter([&] {
    EXPECT_TRUE(second->request_lease(request).ok());
    served = true;
  });
  EXPECT_EQ(queued.get_future().get(), 0u);
  first.reset();
  EXPECT_TRUE(workers_.wait([this] { return workers_.killed == 1; }));
  EXPECT_EQ(link()->request_lease(ask(1, milliseconds(50))).status().code(), Code::kRefused);
  EXPECT_FALSE(served);
  workers_.let_go();
  waiter.join();
  EXPECT_TRUE(served);
}

// The first of two queued requests leaves. The other one is told that it is next, and still why it
// waits.
TEST_F(DaemonTest, WaitingRequestIsNotifiedOfNewPlace) {
  DaemonOptions options;
  options.devices = 2;
  options.handshake_deadline = kLong;
  options.place_interval = milliseconds(1);
  start(std::move(options));
  auto holder = link(), first = link(), second = link();
  ASSERT_TRUE(holder->request_lease(ask(1)).ok());
  std::promise<void> first_waits;
  auto request = ask(2, kLong);
  request.on_queued = [&](const protocol::Queued& place, bool) {
    EXPECT_EQ(place.lacking, 1u);
    EXPECT_EQ(place.gpus, 2u);
    first_waits.set_value();
  };
  std::thread waiter([&] { EXPECT_FALSE(first->request_lease(request).ok()); });
  first_waits.get_future().wait();
  std::vector<unsigned> places;
  auto other = ask(2, kLong);
  other.on_queued = [&](const protocol::Queued& place, bool again) {
    if (again) return;
    places.push_back(place.ahead);
    if (place.ahead == 1) shutdown(first->fd(), SHUT_RDWR);
    if (place.ahead == 0) holder.reset();
  };
  EXPECT_TRUE(second->request_lease(other).ok());
  EXPECT_EQ(places, (std::vector<unsigned>{1, 0}));
  waiter.join();
}

// The client reminds its user although the server sends nothing new.
TEST_F(DaemonTest, ClientRemindsUserOfWaitingRequest) {
  start(1);
  auto holder = link(), waiting = link();
  ASSERT_TRUE(holder->request_lease(ask(1)).ok());
  auto request = ask(1, kLong);
  request.remind_every = milliseconds(1);
  std::vector<bool> said;
  request.on_queued = [&](const protocol::Queued& place, bool again) {
    EXPECT_EQ(place.lacking, 1u);
    said.push_back(again);
    if (said.size() == 3) holder.reset();
  };
  EXPECT_TRUE(waiting->request_lease(request).ok());
  ASSERT_GE(said.size(), 3u);
  EXPECT_FALSE(said[0]);
  EXPECT_TRUE(said[1] && said[2]);
}

TEST_F(DaemonTest, TicketIsRefusedAfterItsLeaseEnds) {
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  control.reset();
  // The GPU becomes free after the lease has left the book.
  ASSERT_TRUE(link()->request_lease(ask(1, kLong)).ok());
  EXPECT_EQ(client::attach(*session, {}).status().code(), Code::kRefused);
  EXPECT_EQ(workers_.started, 0);
}

TEST_F(DaemonTest, ForgedOrIncompatibleAttachIsRefused) {
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  client::SessionData forged = *session;
  forged.ticket_key[0] ^= 1;
  EXPECT_EQ(client::attach(forged, {}).status().code(), Code::kRefused);
  forged = *session;
  forged.ticket[0] ^= 1;
  EXPECT_EQ(client::attach(forged, {}).status().code(), Code::kRefused);
  auto connection = dial();
  auto other_version = words(*session, 1);
  other_version.version.protocol += 1;
  say(*connection, *session, other_version, 0);
  EXPECT_NE(refusal(*connection).find("update the server"), std::string::npos);
  EXPECT_EQ(workers_.started, 0);
}

TEST_F(DaemonTest, AttachReportsRowsThatServerLacks) {
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  const driver_abi::Row last = own_row(workers_.rows);
  std::erase_if(workers_.rows, [&](const auto& row) { return row.opcode == last.opcode; });
  const auto attached = client::attach(*session, {});
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ(attached->lacking, std::vector<std::uint16_t>{last.opcode});
  EXPECT_EQ(attached->server_release, "0.0.9");
}

TEST_F(DaemonTest, SessionWithDifferentRowIsRefused) {
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  const driver_abi::Row changed = own_row(workers_.rows);
  for (driver_abi::Row& row : workers_.rows) row.hash ^= row.opcode == changed.opcode ? 1 : 0;
  const auto attached = client::attach(*session, {});
  EXPECT_EQ(attached.status().code(), Code::kRefused);
  for (const char* part : {changed.symbol, "0.0.9", protocol::kRelease, "update the server"}) {
    EXPECT_NE(attached.status().message().find(part), std::string::npos)
        << part << ": " << attached.status().message();
  }
}

TEST_F(DaemonTest, SessionUsesCommonFeaturesAndIgnoresUnknownBits) {
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  constexpr std::uint64_t kTomorrow = std::uint64_t{1} << 63;
  client::AttachOptions options;
  options.features.offered |= kTomorrow;
  const std::uint64_t known = workers_.features.offered & options.features.offered;
  workers_.features.offered |= kTomorrow >> 1;
  const auto attached = client::attach(*session, options);
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ(attached->features, known);
  // The answer may arrive before the spawner has noted everything.
  const std::lock_guard lock(workers_.mutex);
  EXPECT_EQ(workers_.asked, options.features);
}

TEST_F(DaemonTest, SessionWithoutRequiredFeatureIsRefused) {
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  const auto refused = [&](const client::AttachOptions& options, const char* what,
                           const char* whom) {
    const auto attached = client::attach(*session, options);
    EXPECT_EQ(attached.status().code(), Code::kRefused);
    for (const char* part : {what, whom}) {
      EXPECT_NE(attached.status().message().find(part), std::string::npos)
          << part << ": " << attached.status().message();
    }
  };
  // The daemon reports this before there is a worker.
  client::AttachOptions tomorrow;
  tomorrow.features.offered = tomorrow.features.required = ~std::uint64_t{0};
  refused(tomorrow, "requires sessions that outlive", "update the server");
  EXPECT_EQ(workers_.started, 0);
  // The client reports this about the worker.
  workers_.features.required = std::uint64_t{1} << 40;
  refused({}, "requires feature 40", "update the client");
  workers_.features = {};
  refused({}, "does not offer loading code images by their hash", "update the server");
}

TEST_F(DaemonTest, ClientRejectsInvalidRowTable) {
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  workers_.told = {{2, 0}, {2, 0}};
  EXPECT_EQ(client::attach(*session, {}).status().code(), Code::kProtocol);
}

TEST_F(DaemonTest, ReplayedAttachIsRefused) {
  start(1);
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  auto log = dial();
  auto lane = dial();
  say(*lane, *session, words(*session, 9), 1);
  say(*log, *session, words(*session, 9), 0);
  EXPECT_TRUE(workers_.wait([this] { return workers_.started == 1; }));
  auto again = dial();
  say(*again, *session, words(*session, 9), 0);
  EXPECT_NE(refusal(*again).find("before"), std::string::npos);
  EXPECT_EQ(workers_.started, 1);
}

TEST_F(DaemonTest, WorkerStartFailureIsReportedToClient) {
  start(1);
  workers_.fail = true;
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  const auto attached = client::attach(*session, {});
  EXPECT_EQ(attached.status().code(), Code::kRefused);
  EXPECT_NE(attached.status().message().find("on purpose"), std::string::npos);
}

TEST_F(DaemonTest, UnauthenticatedConnectionsTimeOut) {
  DaemonOptions options;
  options.devices = 1;
  options.handshake_deadline = milliseconds(200);
  options.half_open_max = 2;
  start(std::move(options));
  std::vector<std::unique_ptr<transport::Connection>> strangers;
  for (int i = 0; i < 10; ++i) {
    strangers.push_back(dial());
    if (i % 2 == 0) continue;  // It sends nothing.
    const ByteView part = byte_view("g", 1);
    ASSERT_TRUE(strangers.back()->send({&part, 1}, soon()).ok());
  }
  for (auto& connection : strangers) EXPECT_TRUE(closed(*connection));
  auto control = link();
  EXPECT_TRUE(control->request_lease(ask(1)).ok());
}

TEST_F(DaemonTest, ConnectionOverHandshakeLimitWaitsForFreeSlot) {
  DaemonOptions options;
  options.devices = 1;
  options.handshake_deadline = options.half_open_grace = kLong;
  start(std::move(options));
  std::vector<std::unique_ptr<transport::Connection>> strangers;
  for (std::size_t i = 0; i < limits::kHalfOpenOfSourceMax; ++i) {
    strangers.push_back(dial());
    const ByteView part = byte_view("g", 1);
    ASSERT_TRUE(strangers.back()->send({&part, 1}, soon()).ok());
  }
  const Deadline deadline = soon();
  while (daemon_->half_open() < strangers.size() && !deadline.passed()) std::this_thread::yield();
  auto late = dial();
  const protocol::Hello hello{protocol::our_version(protocol::Sender::kClient), {}};
  ASSERT_TRUE(protocol::send_control(*late, hello, soon()).ok());
  std::byte head[protocol::kControlHeaderBytes];
  EXPECT_EQ(late->receive(head, sizeof head, Deadline::in(milliseconds(50))).status().code(),
            Code::kDeadline);
  EXPECT_EQ(daemon_->half_open(), limits::kHalfOpenOfSourceMax + 1);
  strangers.pop_back();
  EXPECT_TRUE(late->receive(head, sizeof head, soon()).ok());
}

TEST_F(DaemonTest, OversizedHelloClosesConnection) {
  start(1);
  for (const std::size_t bytes : {limits::kHelloBytesMax, limits::kHelloBytesMax + 8}) {
    auto connection = dial();
    protocol::Hello hello;
    hello.version.protocol = protocol::kVersion + 1;
    Bytes payload = protocol::encode(hello);
    payload.resize(bytes);  // Bytes behind the message in its frame are ignored.
    const Bytes frame = protocol::control_frame(payload, std::nullopt);
    const ByteView part(frame);
    ASSERT_TRUE(connection->send({&part, 1}, soon()).ok());
    // Within the bound it is read and answered.
    const std::string answer = refusal(*connection);
    EXPECT_EQ(answer.find("update") != std::string::npos, bytes == limits::kHelloBytesMax) << bytes;
  }
}

// The product's times. Tests with shorter times cover what happens at them.
TEST(DaemonOptionsTest, DefaultsMatchProtocolLimits) {
  EXPECT_EQ(DaemonOptions{}.handshake_deadline, std::chrono::seconds(limits::kHandshakeDeadlineS));
  EXPECT_EQ(DaemonOptions{}.half_open_max, limits::kHalfOpenMax);
  EXPECT_EQ(DaemonOptions{}.half_open_of_source, limits::kHalfOpenOfSourceMax);
  EXPECT_EQ(DaemonOptions{}.half_open_grace, milliseconds(limits::kHalfOpenGraceMs));
}

TEST_F(DaemonTest, GarbageClosesConnection) {
  start(1);
  for (const char* text : {"GET / HTTP/1.1\r\n\r\n", "grun\xff\xff\xff\x7f\0\0\0\0........"}) {
    auto connection = dial();
    const ByteView part = byte_view(text, 12);
    ASSERT_TRUE(connection->send({&part, 1}, soon()).ok());
    EXPECT_TRUE(closed(*connection));
  }
}

TEST_F(DaemonTest, IncompleteSessionTimesOut) {
  DaemonOptions options;
  options.devices = 1;
  options.handshake_deadline = milliseconds(200);
  start(std::move(options));
  auto control = link();
  const auto session = control->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  auto log = dial();
  say(*log, *session, words(*session, 3), 0);
  EXPECT_TRUE(closed(*log));
  EXPECT_EQ(workers_.started, 0);
}

}  // namespace
}  // namespace gpurun::server
