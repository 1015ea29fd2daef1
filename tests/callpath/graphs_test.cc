// Graph operations in the client: they live exactly as long as something may run them. Covers new
// parameters of an executable, its running launches, and a change that the driver refused half-way
// (docs/adr/0011-graphs-and-host-memory.md).
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "client/session/graph_host.h"
#include "protocol/calls/graph_host.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using client::CallSite;
using client::GraphHost;
using client::Handle;
using client::HandleKind;
using protocol::GraphNodePayload;
using protocol::GraphWork;

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr std::size_t kBytes = 300'000;  // More than one item can carry.

// A function of the program that blocks until it is released.
struct Gate {
  std::atomic<bool> reached{false};
  std::atomic<bool> open{false};
  static void stand(void* user) {
    auto* gate = static_cast<Gate*>(user);
    gate->reached = true;
    gate->reached.notify_all();
    gate->open.wait(false);
  }
  void release() {
    open = true;
    open.notify_all();
  }
};

struct Built {
  Handle graph = 0, gate = 0, out = 0, exec = 0;
};

class Graphs : public ::testing::Test {
 protected:
  Graphs() {
    auto* library = dlopen(CHANGED_DEVICE, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    refuse_ = reinterpret_cast<decltype(refuse_)>(dlsym(library, "gpurun_test_refuse"));
    other_context_ = world_.retain_primary_context(1);
  }

  void TearDown() override { gate_.release(); }

  Handle mint(HandleKind kind, Handle context = 0) {
    return world_.session().handles().mint(kind, context, nullptr);
  }
  std::size_t operations() { return world_.session().graphs().operations(); }
  // The driver frees the operations that it keeps shortly after the launch. Each fence gives it
  // time.
  ::testing::AssertionResult comes_down_to(std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (operations() > count && std::chrono::steady_clock::now() < end) world_.synchronize();
    if (operations() == count) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << operations() << " operations instead of " << count;
  }

  CallSite in_context(const char* symbol, Handle context) {
    CallSite site = world_.site(symbol);
    if (context != 0) site.context = context;
    return site;
  }

  int send(const char* symbol, Handle context, GraphNodePayload node, GraphHost::Operation work,
           const std::vector<Handle>& behind = {}) {
    CallSite site = in_context(symbol, context);
    site.form = protocol::Form::kRaw;
    node.operation = world_.session().graphs().add(work);
    node.dependency_count = static_cast<std::uint32_t>(behind.size());
    const ByteView parts[] = {bytes_of(node),
                              byte_view(behind.data(), behind.size() * sizeof(Handle))};
    client::Reply reply;
    return world_.session().call(world_.lane(), site, parts, &reply);
  }

  static GraphNodePayload copy_out(Handle graph, Handle node, std::uint64_t from) {
    GraphNodePayload payload;
    payload.work = GraphWork::kCopyOut;
    payload.graph = graph;
    payload.node = node;
    payload.source = {from, kBytes, 0};
    payload.width = kBytes;
    payload.lines = payload.slices = 1;
    return payload;
  }
  static GraphHost::Operation into(Bytes& memory) {
    memory.assign(kBytes, std::byte{0});
    GraphHost::Operation work;
    work.to = {reinterpret_cast<std::uintptr_t>(memory.data()), kBytes, 0, kBytes};
    return work;
  }

  // A graph of a function and then a copy from `from` to `memory`, and its executable.
  Built build(Handle context, std::uint64_t from, Bytes& memory) {
    Built built;
    std::uint64_t out = 0;
    void* place = &out;
    unsigned no_flags = 0;
    built.graph = mint(HandleKind::kGraph);
    EXPECT_EQ(world_.call("cuGraphCreate", {&place, &no_flags}, {built.graph}), 0);
    built.gate = mint(HandleKind::kGraphNode);
    built.out = mint(HandleKind::kGraphNode);
    GraphNodePayload function;
    function.graph = built.graph;
    function.node = built.gate;
    GraphHost::Operation stand;
    stand.function = &Gate::stand;
    stand.user = &gate_;
    EXPECT_EQ(send("cuGraphAddHostNode", context, function, stand), 0);
    EXPECT_EQ(send("cuGraphAddMemcpyNode", context, copy_out(built.graph, built.out, from),
                   into(memory), {built.gate}),
              0);
    built.exec = instantiate(built.graph);
    return built;
  }
  Handle instantiate(Handle graph) {
    std::uint64_t out = 0;
    void* place = &out;
    unsigned long long no_flags = 0;
    const Handle exec = mint(HandleKind::kGraphExec);
    EXPECT_EQ(world_.call("cuGraphInstantiateWithFlags", {&place, &graph, &no_flags}, {exec}), 0);
    return exec;
  }

  // Sets the copy of the executable or, without `in_exec`, of the graph.
  int set_out(const Built& built, bool in_exec, std::uint64_t from, Bytes& memory,
              Handle context = 0) {
    return send(in_exec ? "cuGraphExecMemcpyNodeSetParams" : "cuGraphMemcpyNodeSetParams", context,
                copy_out(in_exec ? built.exec : Handle{0}, built.out, from), into(memory));
  }
  int launch(Handle exec, Handle context = 0, Handle stream = 0) {
    CallSite site = in_context("cuGraphLaunch", context);
    site.order = protocol::Order::kStream;
    site.stream = stream;
    return world_.call_at(site, {&exec, &stream});
  }
  int destroy(const char* symbol, Handle handle) {
    CallSite site = world_.site(symbol);
    site.order = protocol::Order::kOrderedHost;
    return world_.call_at(site, {&handle});
  }
  int synchronize(Handle context) {
    return world_.call_at(in_context("cuCtxSynchronize", context), {});
  }

  // Device memory of that context, every byte `value`.
  std::uint64_t filled(unsigned char value, Handle context = 0) {
    std::uint64_t address = 0;
    void* place = &address;
    std::size_t bytes = kBytes;
    EXPECT_EQ(world_.call_at(in_context("cuMemAlloc_v2", context), {&place, &bytes}), 0);
    EXPECT_EQ(world_.session().copy_in(world_.lane(), in_context("cuMemcpyHtoDAsync_v2", context),
                                       address, Bytes(kBytes, std::byte{value}),
                                       client::Session::Reading::kNow),
              0);
    return address;
  }
  static bool all(const Bytes& memory, unsigned char value) {
    return memory == Bytes(kBytes, std::byte{value});
  }

  static WorldOptions on_changed_device() {
    WorldOptions options;
    options.driver = CHANGED_DEVICE;
    return options;
  }

  Gate gate_;  // Outlives the threads that block in it.
  World world_{on_changed_device()};
  Handle other_context_ = 0;
  void (*refuse_)(const char* function, int code, int calls) = nullptr;
};

TEST_F(Graphs, ReplacedOperationIsFreedAfterItsLaunches) {
  gate_.release();
  const std::uint64_t device = filled(7);
  Bytes first, memory;
  const Built built = build(0, device, first);
  const std::size_t of_graph = operations();
  for (int i = 0; i < 50; ++i) ASSERT_EQ(set_out(built, true, device, memory), 0);
  EXPECT_EQ(operations(), of_graph + 1) << "set without a launch";
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(set_out(built, true, device, memory), 0);
    ASSERT_EQ(launch(built.exec), 0);
    ASSERT_EQ(world_.synchronize(), 0);
    ASSERT_TRUE(all(memory, 7)) << i;
  }
  EXPECT_TRUE(comes_down_to(of_graph + 1));
  EXPECT_TRUE(all(first, 0));
  EXPECT_EQ(destroy("cuGraphExecDestroy", built.exec), 0);
  EXPECT_EQ(destroy("cuGraphDestroy", built.graph), 0);
  EXPECT_TRUE(comes_down_to(0));
}

TEST_F(Graphs, RunningLaunchKeepsItsOperation) {
  Bytes at_first, then, at_last;
  const std::uint64_t one = filled(1), two = filled(2);
  const Built built = build(0, one, at_first);
  const std::size_t of_graph = operations();
  ASSERT_EQ(set_out(built, true, one, then), 0);
  ASSERT_EQ(launch(built.exec), 0);
  gate_.reached.wait(false);
  ASSERT_EQ(set_out(built, true, two, at_last), 0);
  ASSERT_EQ(launch(built.exec), 0);
  EXPECT_EQ(operations(), of_graph + 2) << "the first launch is under way";
  gate_.release();
  ASSERT_EQ(world_.synchronize(), 0);
  EXPECT_TRUE(all(then, 1) && all(at_last, 2) && all(at_first, 0));
  EXPECT_TRUE(comes_down_to(of_graph + 1));
}

TEST_F(Graphs, RunningExecutableCanBeDestroyedInOtherContext) {
  Bytes first, memory;
  const std::uint64_t device = filled(9, other_context_);
  const Built built = build(other_context_, device, first);
  ASSERT_EQ(set_out(built, true, device, memory, other_context_), 0);
  const std::size_t all_of_it = operations();
  ASSERT_EQ(launch(built.exec, other_context_), 0);
  gate_.reached.wait(false);
  // In the first context, where nothing runs.
  ASSERT_EQ(destroy("cuGraphExecDestroy", built.exec), 0);
  ASSERT_EQ(world_.synchronize(), 0);
  EXPECT_EQ(operations(), all_of_it);
  gate_.release();
  ASSERT_EQ(synchronize(other_context_), 0);
  EXPECT_TRUE(all(memory, 9));
  EXPECT_EQ(destroy("cuGraphDestroy", built.graph), 0);
  EXPECT_TRUE(comes_down_to(0));
}

TEST_F(Graphs, ReusedDriverNodeGetsItsOwnHandle) {
  std::uint64_t out = 0;
  void* place = &out;
  void* none = nullptr;
  std::size_t count = 0;
  Handle child = 0;
  const auto add_child = [&](Handle graph) {
    const Handle node = mint(HandleKind::kGraphNode);
    EXPECT_EQ(
        world_.call("cuGraphAddChildGraphNode", {&place, &graph, &none, &count, &child}, {node}),
        0);
    return node;
  };
  const auto make_graph = [&] {
    unsigned no_flags = 0;
    const Handle graph = mint(HandleKind::kGraph);
    EXPECT_EQ(world_.call("cuGraphCreate", {&place, &no_flags}, {graph}), 0);
    return graph;
  };
  child = make_graph();
  const Handle gone = make_graph();
  (void)add_child(gone);
  ASSERT_EQ(destroy("cuGraphDestroy", gone), 0);
  reinterpret_cast<void (*)()>(dlsym(dlopen(CHANGED_DEVICE, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD),
                                     "gpurun_test_use_child_node_again"))();
  Handle node = add_child(make_graph());
  unsigned type = 0;
  void* type_place = &type;
  EXPECT_EQ(world_.call("cuGraphNodeGetType", {&node, &type_place}), 0);
}

TEST_F(Graphs, PartlyRefusedChangeLeavesGraphUnchanged) {
  gate_.release();
  Bytes first, refused;
  const std::uint64_t one = filled(1), two = filled(2);
  const Built built = build(0, one, first);
  const std::size_t of_graph = operations();
  refuse_("cuGraphHostNodeSetParams", kOutOfMemory, 1);
  EXPECT_EQ(set_out(built, false, two, refused), kOutOfMemory);
  EXPECT_EQ(operations(), of_graph);
  const Handle exec = instantiate(built.graph);
  ASSERT_EQ(launch(exec), 0);
  ASSERT_EQ(world_.synchronize(), 0);
  EXPECT_TRUE(all(first, 1) && all(refused, 0));
}

TEST_F(Graphs, PartlySetExecutableFailsToLaunchUntilSetAgain) {
  gate_.release();
  Bytes first, refused, memory;
  const std::uint64_t one = filled(1), two = filled(2);
  const Built built = build(0, one, first);
  refuse_("cuGraphExecHostNodeSetParams", kOutOfMemory, 1);
  EXPECT_EQ(set_out(built, true, two, refused), kOutOfMemory);
  EXPECT_EQ(launch(built.exec), kOutOfMemory);
  ASSERT_EQ(set_out(built, true, two, memory), 0);
  ASSERT_EQ(launch(built.exec), 0);
  ASSERT_EQ(world_.synchronize(), 0);
  EXPECT_TRUE(all(first, 0) && all(refused, 0) && all(memory, 2));
}

// User objects: the program's destructor runs once, when the last reference has ended.
struct UserObject {
  std::atomic<int> ends{0};
  static void end(void* user) {
    auto* own = static_cast<UserObject*>(user);
    ++own->ends;
    own->ends.notify_all();
  }
};

class UserObjects : public Graphs {
 protected:
  int create(Handle handle, std::uint32_t references) {
    GraphHost::Operation operation;
    operation.destroy = &UserObject::end;
    operation.user = &object_;
    operation.object = handle;
    const protocol::GraphUserObjectPayload payload{handle, world_.session().graphs().add(operation),
                                                   references, 0};
    CallSite site = in_context("cuUserObjectCreate", 0);
    site.form = protocol::Form::kRaw;
    client::Reply reply;
    return world_.session().call(world_.lane(), site, bytes_of(payload), &reply);
  }
  int release(Handle handle, unsigned count) {
    return world_.call("cuUserObjectRelease", {&handle, &count});
  }

  UserObject object_;
};

TEST_F(UserObjects, DestructorRunsWithTheLastReference) {
  const Handle handle = mint(HandleKind::kUserObject);
  ASSERT_EQ(create(handle, 3), 0);
  ASSERT_EQ(release(handle, 2), 0);
  ASSERT_EQ(world_.synchronize(), 0);
  EXPECT_EQ(object_.ends, 0);
  EXPECT_EQ(operations(), 1u);
  ASSERT_EQ(release(handle, 1), 0);
  ASSERT_TRUE(comes_down_to(0));
  object_.ends.wait(0);
  EXPECT_EQ(object_.ends, 1);
  // Both ends have forgotten the handle.
  EXPECT_EQ(world_.session().handles().check(handle, HandleKind::kUserObject), kInvalidValue);
  EXPECT_EQ(release(handle, 1), kInvalidValue);
}

TEST_F(UserObjects, RefusedObjectIsNotDestroyed) {
  const Handle handle = mint(HandleKind::kUserObject);
  refuse_("cuUserObjectCreate", kOutOfMemory, 1);
  EXPECT_EQ(create(handle, 1), kOutOfMemory);
  ASSERT_EQ(world_.synchronize(), 0);
  EXPECT_EQ(object_.ends, 0) << "the program still has the object";
}

// A launch costs one call of the driver, however many nodes the graph has.
TEST(GraphLaunches, LaunchSetsNoContext) {
  static std::atomic<int> contexts_set{0};
  static int (*set_current)(void*) = nullptr;
  WorldOptions options;
  options.prepare = [](server::WorkerOptions& worker) {
    set_current = worker.driver.cuCtxSetCurrent;
    worker.driver.cuCtxSetCurrent = [](void* context) {
      ++contexts_set;
      return set_current(context);
    };
  };
  World world(options);
  const auto mint = [&](HandleKind kind) {
    return world.session().handles().mint(kind, 0, nullptr);
  };
  std::uint64_t out = 0;
  void* place = &out;
  unsigned no_flags = 0;
  unsigned long long no_long_flags = 0;
  Handle graph = mint(HandleKind::kGraph), exec = mint(HandleKind::kGraphExec);
  ASSERT_EQ(world.call("cuGraphCreate", {&place, &no_flags}, {graph}), 0);
  for (int node = 0; node < 100; ++node) {
    void* behind_none = nullptr;
    std::size_t none = 0;
    ASSERT_EQ(world.call("cuGraphAddEmptyNode", {&place, &graph, &behind_none, &none},
                         {mint(HandleKind::kGraphNode)}),
              0);
  }
  ASSERT_EQ(world.call("cuGraphInstantiateWithFlags", {&place, &graph, &no_long_flags}, {exec}), 0);
  Handle stream = world.make_stream();
  const auto launch = [&] {
    return world.call_at(world.site("cuGraphLaunch", stream), {&exec, &stream});
  };
  ASSERT_EQ(launch(), 0);
  const int before = contexts_set;
  for (int time = 0; time < 1000; ++time) ASSERT_EQ(launch(), 0);
  EXPECT_EQ(contexts_set, before);
}

}  // namespace
}  // namespace gpurun::callpath
