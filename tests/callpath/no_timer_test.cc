// Launches: a launch that no other call follows starts on the device without a timer. All periods
// of the session and the worker are an hour here, so no timer can start it.
#include <gtest/gtest.h>

#include <future>

#include "protocol/calls/image_bundle.h"
#include "protocol/calls/module_calls.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using namespace std::chrono_literals;
using client::Handle;
using client::HandleKind;
using client::Reply;

constexpr auto kNever = 1h;
constexpr auto kPatience = 20s;  // The test's limit, for a busy machine.

constexpr char kPtx[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry empty()\n{\n ret;\n}\n";

std::promise<void>* g_started = nullptr;
decltype(server::DriverFunctions::cuLaunchKernelEx) g_launch = nullptr;

template <typename... Arguments>
int launch_and_tell(Arguments... arguments) {
  const int result = g_launch(arguments...);
  g_started->set_value();
  return result;
}

class LaunchStart : public ::testing::Test {
 protected:
  static WorldOptions timeless() {
    WorldOptions options;
    options.session.heartbeat = kNever;
    options.session.silence_deadline = 2 * kNever;
    options.prepare = [](server::WorkerOptions& worker) {
      worker.heartbeat = kNever;
      worker.silence_deadline = 2 * kNever;
      g_launch = worker.driver.cuLaunchKernelEx;
      worker.driver.cuLaunchKernelEx = &launch_and_tell;
    };
    return options;
  }

  client::CallSite raw(const char* symbol) {
    client::CallSite site = world_.site(symbol);
    site.form = protocol::Form::kRaw;
    return site;
  }

  Handle load_kernel() {
    const driver_abi::Image image{
        driver_abi::ImageForm::kPtx, 0, {byte_view(kPtx, sizeof kPtx - 1)}};
    const Bytes bundle = protocol::make_bundle(image);
    protocol::ImageLoad load;
    load.handle = world_.session().handles().mint(HandleKind::kModule, world_.context(), nullptr);
    load.digest = sha256(bundle);
    load.image = bundle;
    const Bytes payload = protocol::pack(std::span<const protocol::ImageLoad>(&load, 1));
    Reply reply;
    EXPECT_EQ(
        world_.session().call(world_.lane(), raw("cuModuleLoadDataEx"), ByteView(payload), &reply),
        0);
    const Handle function =
        world_.session().handles().mint(HandleKind::kFunction, world_.context(), nullptr);
    const Bytes name = protocol::pack(protocol::NameRequest{load.handle, function, "empty"});
    EXPECT_EQ(
        world_.session().call(world_.lane(), raw("cuModuleGetFunction"), ByteView(name), &reply),
        0);
    return function;
  }

  int post_launch(Handle function) {
    protocol::LaunchPayload head;
    head.function = function;
    head.layout_hash = protocol::layout_hash({});
    client::CallSite site = world_.site("cuLaunchKernel");
    site.form = protocol::Form::kLaunch;
    site.order = protocol::Order::kStream;
    return world_.session().post(world_.lane(), site, bytes_of(head));
  }

  World world_{timeless()};
};

TEST_F(LaunchStart, PostedLaunchStartsWithoutTimer) {
  const Handle function = load_kernel();
  // Repeated, because the sender sleeps each time and must be woken by the launch.
  for (int round = 0; round < 20; ++round) {
    std::promise<void> started;
    g_started = &started;
    ASSERT_EQ(post_launch(function), 0);
    ASSERT_EQ(started.get_future().wait_for(kPatience), std::future_status::ready)
        << "round " << round;
  }
}

}  // namespace
}  // namespace gpurun::callpath
