// Worker fabric: each connection of a session gets its place among them, and the rings leave locked
// memory for the copies that the worker's device reads and writes by itself. The client learns why
// the server has no end.
#include "server/worker/channels/worker_fabric.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/rdma_pair.h"
#include "transport/rdma/exchange.h"

namespace gpurun::server {
namespace {

namespace rdma = transport::rdma;
using transport::test::soon;
using transport::test::VerbsDouble;

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;
constexpr unsigned kConnections = 3;

// Notes where the ends belong, and has none.
class FullFabric final : public rdma::Fabric {
 public:
  explicit FullFabric(std::vector<rdma::EndPlace>* places) : places_(*places) {}
  Result<std::unique_ptr<rdma::FabricEnd>> make_end(const rdma::Gid&, const rdma::Offer*,
                                                    const rdma::EndPlace& place) override {
    places_.push_back(place);
    return Status(Code::kResourceExhausted, "it is \x1b[31mfull");
  }
  std::vector<std::string> ports() const override { return {}; }

 private:
  std::vector<rdma::EndPlace>& places_;
};

TEST(WorkerFabric, RingsLeaveMemoryForReadsAndForWrites) {
  VerbsDouble::set("rdma0");
  std::vector<rdma::EndPlace> places;
  WorkerFabric worker({"rdma0:1"}, {});
  worker.use(std::make_unique<FullFabric>(&places));
  auto fabric = transport::test::any_fabric();
  ASSERT_TRUE(fabric.ok()) << fabric.status().to_string();
  auto listener = transport::listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  std::vector<std::unique_ptr<transport::Connection>> ours;
  WorkerChannels channels;
  for (unsigned i = 0; i < kConnections; ++i) {
    ours.push_back(*transport::connect("tcp://" + (*listener)->address(), soon()));
    auto theirs = (*listener)->accept(soon());
    ASSERT_TRUE(theirs.ok());
    if (i == 0) {
      channels.log = *std::move(theirs);
    } else {
      channels.bulk.push_back(*std::move(theirs));
    }
  }
  worker.note(channels);
  auto answering = std::async(std::launch::async, [&] { return worker.answer(channels, soon()); });
  for (auto& connection : ours) {
    auto asked = rdma::ask(*connection, {fabric->get()}, soon());
    ASSERT_TRUE(asked.ok()) << asked.status().to_string();
    const auto entered = rdma::enter(connection, nullptr, *std::move(asked), soon());
    ASSERT_TRUE(entered.ok()) << entered.status().to_string();
    EXPECT_EQ(entered->why_none, "the server: it is ?[31mfull");
  }
  const auto agreements = answering.get();
  ASSERT_TRUE(agreements.ok()) << agreements.status().to_string();
  ASSERT_EQ(places.size(), kConnections);
  for (unsigned i = 0; i < kConnections; ++i) {
    EXPECT_EQ(places[i].index, i);
    EXPECT_EQ(places[i].count, kConnections);
    // The staging memory of reads, and then that of results.
    EXPECT_EQ(places[i].later, (rdma::LaterBytes{32 * kMib, 64 * kMib}));
  }
}

}  // namespace
}  // namespace gpurun::server
