// World: joins client and worker by sockets of the loopback interface.
#include "tests/callpath/world.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "driver_abi/row.h"
#include "server/handlers/memory/host_arena.h"
#include "transport/transport.h"

namespace gpurun::callpath {
namespace {

constexpr std::chrono::seconds kPatience{20};

server::CudaDriver& device(const char* path) {
  static auto* const opened = new std::map<std::string, server::CudaDriver*>;
  server::CudaDriver*& own = (*opened)[path];
  if (own == nullptr) {
    auto driver = server::CudaDriver::open(path);
    EXPECT_TRUE(driver.ok()) << driver.status().to_string();
    EXPECT_TRUE((*driver)->initialize().ok());
    own = driver->release();
  }
  return *own;
}

server::DriverFunctions functions(const char* path) {
  const auto all =
      server::DriverFunctions::from_library(dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
  EXPECT_TRUE(all.ok()) << all.status().to_string();
  return *all;
}

Ends connect_by_tcp(transport::Listener& listener) {
  auto near = transport::connect("tcp://" + listener.address(), Deadline::in(kPatience));
  auto far = listener.accept(Deadline::in(kPatience));
  EXPECT_TRUE(near.ok() && far.ok());
  return {*std::move(near), *std::move(far)};
}

}  // namespace

World::World(const WorldOptions& given) {
  auto listener = transport::listen("tcp://127.0.0.1:0");
  EXPECT_TRUE(listener.ok());
  client::Session::Channels client_side;
  server::WorkerChannels server_side;
  for (int i = 0; i <= given.bulk_connections; ++i) {
    Ends ends = given.connect ? given.connect(i) : connect_by_tcp(**listener);
    if (i == 0) {
      client_side.log = std::move(ends.client);
      server_side.log = std::move(ends.worker);
    } else {
      client_side.bulk.push_back(std::move(ends.client));
      server_side.bulk.push_back(std::move(ends.worker));
    }
  }
  client_side.server_name = "world";
  server::WorkerOptions options;
  const char* const driver = given.driver != nullptr ? given.driver : NULL_DEVICE;
  auto state = server::make_handler_state(device(driver));
  EXPECT_TRUE(state.ok()) << state.status().to_string();
  state_ = *std::move(state);
  options.driver = functions(driver);
  options.handlers = server::make_handlers();
  options.user = state_.get();
  options.host_memory = &state_->host_arena().memory();
  if (given.prepare != nullptr) given.prepare(options);
  worker_ = std::thread([this, options, channels = std::move(server_side)]() mutable {
    worker_end_ = server::run_worker(options, std::move(channels));
  });
  auto session = client::Session::start(std::move(client_side), given.session);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  session_ = *std::move(session);

  context_ = retain_primary_context(0);
}

World::~World() {
  end_session();
  if (worker_.joinable()) worker_.join();
}

Status World::worker_end() {
  worker_.join();
  return worker_end_;
}

client::CallSite World::site(const char* symbol, std::uint64_t stream) const {
  client::CallSite site;
  site.opcode = driver_abi::find_row(symbol)->opcode;
  // The call that makes the context current runs in no context.
  if (std::string_view(symbol) != "cuDevicePrimaryCtxRetain") site.context = context_;
  site.stream = stream;
  return site;
}

int World::call(const char* symbol, std::vector<void*> arguments,
                const std::vector<std::uint64_t>& minted) {
  return call_at(site(symbol), std::move(arguments), minted);
}

int World::call_at(const client::CallSite& site, std::vector<void*> arguments,
                   const std::vector<std::uint64_t>& minted) {
  const driver_abi::Row& row = *driver_abi::find_row(site.opcode);
  protocol::PackedCall packed;
  const Status status = packed.pack(row, arguments.data(), minted);
  EXPECT_TRUE(status.ok()) << status.to_string();
  client::Reply reply;
  const int result = session().call(lane(), site, packed.bytes(), &reply);
  if (reply.result != 0 || reply.payload.empty()) return result;
  EXPECT_TRUE(protocol::unpack_reply(row, arguments.data(), reply.payload).ok());
  return result;
}

client::Handle World::retain_primary_context(int ordinal) {
  const client::Handle handle = session().handles().mint(client::HandleKind::kContext, 0, nullptr);
  std::uint64_t out = 0;
  void* place = &out;
  EXPECT_EQ(call("cuDevicePrimaryCtxRetain", {&place, &ordinal}, {handle}), 0);
  return handle;
}

std::uint64_t World::allocate(std::size_t bytes) {
  std::uint64_t address = 0;
  void* place = &address;
  EXPECT_EQ(call("cuMemAlloc_v2", {&place, &bytes}), 0);
  return address;
}

client::Handle World::make_stream() {
  const client::Handle handle =
      session().handles().mint(client::HandleKind::kStream, context_, nullptr);
  std::uint64_t out = 0;
  void* place = &out;
  unsigned flags = 0;
  EXPECT_EQ(call("cuStreamCreate", {&place, &flags}, {handle}), 0);
  return handle;
}

int World::synchronize() { return call("cuCtxSynchronize", {}); }

}  // namespace gpurun::callpath
