// Managed variables: the worker mirrors the driver's own memory, at the driver's address, until the
// library ends. It trusts nothing: it checks names, libraries and bounds.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "protocol/calls/host_mirror.h"
#include "protocol/calls/image_bundle.h"
#include "protocol/calls/managed_variable.h"
#include "protocol/calls/module_calls.h"
#include "tests/callpath/mirror_lines.h"
#include "tests/callpath/world.h"

namespace gpurun::callpath {
namespace {

using client::Handle;
using client::HandleKind;
using protocol::HostMirrorChanges;
using protocol::HostMirrorHead;
using protocol::HostMirrorPiece;
using protocol::HostMirrorRange;
using protocol::HostMirrorStep;
using protocol::ManagedVariable;
using protocol::Order;

class ManagedVariables : public ::testing::Test {
 protected:
  int call(const char* symbol, Order order, std::span<const ByteView> parts, Bytes* answer) {
    client::CallSite site = world_.site(symbol);
    site.form = protocol::Form::kRaw;
    site.order = order;
    site.context = order == Order::kImmediate ? 0 : site.context;
    client::Reply reply;
    reply.result = -1;
    (void)world_.session().call(world_.lane(), site, parts, &reply);
    answer->assign(reply.payload.begin(), reply.payload.end());
    return reply.result;
  }
  Handle load() {
    const std::string text =
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry axpy()\n{\n ret;\n}\n";
    const driver_abi::Image image{
        driver_abi::ImageForm::kPtx, 0, {byte_view(text.data(), text.size())}};
    const Bytes bundle = protocol::make_bundle(image);
    protocol::ImageLoad load;
    load.handle = world_.session().handles().mint(HandleKind::kLibrary, 0, nullptr);
    load.digest = sha256(bundle);
    load.image = bundle;
    const Bytes payload = protocol::pack(std::span<const protocol::ImageLoad>(&load, 1));
    const ByteView part(payload);
    Bytes answer;
    EXPECT_EQ(call("cuLibraryLoadData", Order::kContext, {&part, 1}, &answer), 0);
    return load.handle;
  }
  int find(Handle library, const std::string& name, ManagedVariable* variable) {
    const Bytes payload = protocol::pack(protocol::NameRequest{library, 0, name});
    const ByteView part(payload);
    Bytes answer;
    const int result = call("cuLibraryGetManaged", Order::kImmediate, {&part, 1}, &answer);
    EXPECT_EQ(answer.size(), result == 0 ? sizeof *variable : 0);
    if (result == 0) std::memcpy(variable, answer.data(), sizeof *variable);
    return result;
  }
  int unload(Handle library) { return world_.call("cuLibraryUnload", {&library}); }
  int write(std::uint64_t address, const std::vector<std::byte>& lines) {
    const HostMirrorHead head{HostMirrorStep::kWrite, 0, 0};
    const HostMirrorPiece piece{address, static_cast<std::uint32_t>(lines.size()), 0};
    const ByteView parts[] = {bytes_of(head), bytes_of(piece), lines};
    Bytes answer;
    return call("cuMemHostGetDevicePointer_v2", Order::kImmediate, parts, &answer);
  }
  // The changed lines of the range, by address.
  std::map<std::uint64_t, std::vector<std::byte>> changes(std::uint64_t address,
                                                          std::uint64_t bytes) {
    const HostMirrorHead head{HostMirrorStep::kCollect, 0, 0};
    const HostMirrorRange range{address, bytes, 0};
    const ByteView parts[] = {bytes_of(head), bytes_of(range)};
    Bytes answer;
    EXPECT_EQ(call("cuMemHostGetDevicePointer_v2", Order::kImmediate, parts, &answer), 0);
    return mirror_lines(answer);
  }
  static volatile unsigned char* memory(std::uint64_t address) {
    return reinterpret_cast<volatile unsigned char*>(address);
  }

  World world_;
};

TEST_F(ManagedVariables, BothSidesSeeChangesOfTheDriversMemory) {
  const Handle library = load();
  ManagedVariable variable;
  ASSERT_EQ(find(library, "managed", &variable), 0);
  EXPECT_EQ(variable.bytes, 65'536u);
  auto found = changes(variable.address, variable.bytes);
  ASSERT_EQ(found.size(), 1u) << "the initial value";
  EXPECT_EQ(found[variable.address][0], std::byte{'m'});
  EXPECT_TRUE(changes(variable.address, variable.bytes).empty());
  memory(variable.address)[65'535] = 9;  // As a kernel.
  found = changes(variable.address, variable.bytes);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[variable.address + 65'536 - 64][63], std::byte{9});
  ASSERT_EQ(write(variable.address + 4096, std::vector<std::byte>(64, std::byte{3})), 0);
  EXPECT_EQ(memory(variable.address)[4096], 3);
  EXPECT_EQ(memory(variable.address)[4095], 0);
  ManagedVariable again;
  ASSERT_EQ(find(library, "managed", &again), 0);
  EXPECT_EQ(again.address, variable.address);
  EXPECT_TRUE(changes(variable.address, variable.bytes).empty()) << "the same twin";
}

TEST_F(ManagedVariables, VariablesMayShareALine) {
  const Handle library = load();
  ManagedVariable low, high;
  ASSERT_EQ(find(library, "managed_high", &high), 0);
  ASSERT_EQ(find(library, "managed_low", &low), 0);
  ASSERT_EQ(high.address, low.address + 32);
  EXPECT_EQ(high.first_line(), low.first_line());
  EXPECT_EQ(changes(low.first_line(), 64).size(), 1u);
  memory(low.address)[1] = 4;
  EXPECT_EQ(changes(low.first_line(), 64)[low.first_line()][1], std::byte{4});
}

// The driver frees the memory, so that the worker may not look at it any more.
TEST_F(ManagedVariables, VariablesEndWithTheirLibrary) {
  const Handle first = load(), second = load();
  ManagedVariable mine, others;
  ASSERT_EQ(find(first, "managed", &mine), 0);
  ASSERT_EQ(find(second, "managed", &others), 0);
  ASSERT_NE(mine.address, others.address);
  ASSERT_EQ(unload(first), 0);
  EXPECT_TRUE(changes(mine.address, mine.bytes).empty());
  EXPECT_EQ(write(mine.address, std::vector<std::byte>(64)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(find(first, "managed", &mine), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(changes(others.address, others.bytes).size(), 1u);
}

TEST_F(ManagedVariables, OnlyLinesOfVariablesAreReadAndWritten) {
  const Handle library = load();
  ManagedVariable variable;
  ASSERT_EQ(find(library, "managed_low", &variable), 0);
  memory(variable.address)[64] = 7;  // In the same page.
  EXPECT_EQ(changes(variable.first_line(), 4096).size(), 1u);
  EXPECT_EQ(write(variable.first_line() + 64, std::vector<std::byte>(64)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(write(variable.first_line(), std::vector<std::byte>(128)), CUDA_ERROR_INVALID_VALUE)
      << "leaves the variable";
  EXPECT_EQ(memory(variable.address)[64], 7);
}

// The request comes without a context.
TEST_F(ManagedVariables, DriverThatNeedsAContextGetsOne) {
  const Handle library = load();
  ManagedVariable variable;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(find(library, "managed_in_context", &variable), 0);
    EXPECT_EQ(changes(variable.address, variable.bytes).size(), i == 0 ? 1u : 0u);
  }
  EXPECT_EQ(unload(library), 0);
  EXPECT_EQ(world_.synchronize(), 0) << "the program's own context lives";
}

TEST_F(ManagedVariables, WrongRequestsAreRefused) {
  const Handle library = load();
  ManagedVariable variable;
  EXPECT_EQ(find(library, "table", &variable), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(find(world_.context(), "managed", &variable), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(find(library + 1, "managed", &variable), CUDA_ERROR_INVALID_HANDLE);
  Bytes answer;
  const Bytes garbage(64, std::byte{0xff});
  const ByteView part(garbage);
  EXPECT_EQ(call("cuLibraryGetManaged", Order::kImmediate, {&part, 1}, &answer),
            CUDA_ERROR_INVALID_VALUE);
  const Bytes named = protocol::pack(protocol::NameRequest{library, 7, "managed"});
  const ByteView with_handle(named);
  EXPECT_EQ(call("cuLibraryGetManaged", Order::kImmediate, {&with_handle, 1}, &answer),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ManagedVariables, TheirBytesAreBounded) {
  static_assert(limits::kManagedVariableBytesMax == std::uint64_t{4} << 30);
  const Handle first = load(), second = load();
  ManagedVariable variable;
  ASSERT_EQ(find(first, "managed_huge", &variable), 0);
  EXPECT_EQ(find(second, "managed_huge", &variable), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(find(second, "managed", &variable), 0);
  ASSERT_EQ(unload(first), 0);
  EXPECT_EQ(find(second, "managed_huge", &variable), 0);
}

TEST_F(ManagedVariables, TheirNumberIsBounded) {
  const Handle library = load();
  ManagedVariable variable;
  for (std::size_t i = 0; i < limits::kManagedVariablesMax; ++i) {
    ASSERT_EQ(find(library, "managed" + std::to_string(i), &variable), 0) << i;
  }
  EXPECT_EQ(find(library, "managed", &variable), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(find(library, "managed0", &variable), 0);
}

}  // namespace
}  // namespace gpurun::callpath
