// Shareable handles at the worker: it trusts neither the client nor other workers. It refuses
// payloads of a wrong size, unknown tokens and descriptors that are no allocation. It keeps an
// allocation until its last export has ended, and gives each release to the driver once.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "driver_abi/cuda_abi.h"
#include "protocol/calls/handle_form.h"
#include "protocol/calls/shareable_handle.h"
#include "tests/callpath/lying_exchange.h"

namespace gpurun::callpath {
namespace {

using driver_abi::HandleKind;
using protocol::ExportRequest;
using protocol::ExportStep;
using protocol::ImportGrant;
using protocol::ImportRequest;
using protocol::Order;
using protocol::SharingHandle;

constexpr int kInvalidValue = 1, kNotSupported = 801;
constexpr std::size_t kBytes = std::size_t{2} << 20;
constexpr const char* kExport = "cuMemExportToShareableHandle";
constexpr const char* kImport = "cuMemImportFromShareableHandle";
constexpr const char* kPoolExport = "cuMemPoolExportToShareableHandle";
constexpr const char* kPoolImport = "cuMemPoolImportFromShareableHandle";

class ShareableHandles : public ::testing::Test {
 protected:
  ShareableHandles() : exchange_(EMULATED_DEVICE), world_(exchange_.world()) {}

  client::CallSite raw(const char* symbol, Order order = Order::kContext) {
    client::CallSite site = world_.site(symbol);
    site.form = protocol::Form::kRaw;
    site.order = order;
    return site;
  }
  template <typename Payload, typename Answer>
  int ask(const char* symbol, const Payload& payload, Answer* answer) {
    client::Reply reply;
    const int result = world_.session().call(world_.lane(), raw(symbol), bytes_of(payload), &reply);
    if (result == 0 && reply.payload.size() == sizeof *answer) {
      std::memcpy(answer, reply.payload.data(), sizeof *answer);
    }
    return result;
  }
  template <typename Payload>
  int ask(const char* symbol, const Payload& payload) {
    char none = 0;
    return ask(symbol, payload, &none);
  }
  client::Handle mint() {
    return world_.session().handles().mint(HandleKind::kAllocation, 0, nullptr);
  }

  int create(client::Handle handle, std::size_t bytes = kBytes) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    std::uint64_t out = 0, flags = 0;
    void *place = &out, *described = &properties;
    return world_.call("cuMemCreate", {&place, &bytes, &described, &flags}, {handle});
  }
  int release(client::Handle handle) { return world_.call("cuMemRelease", {&handle}); }
  int begin(client::Handle memory, SharingHandle* token) {
    ExportRequest request;
    request.object = memory;
    return ask(kExport, request, token);
  }
  int end(const SharingHandle& token) {
    ExportRequest request;
    request.step = ExportStep::kEnd;
    request.token = token;
    return ask(kExport, request);
  }
  int import(client::Handle minted, ImportGrant* grant) {
    ImportRequest request;
    request.token = {7};
    request.minted = minted;
    return ask(kImport, request, grant);
  }
  // The exchange gives on what it got last.
  void answer_honestly() {
    exchange_.content = exchange_.given_content;
    exchange_.files = {exchange_.given_files.front().get()};
  }
  std::size_t used() {
    std::size_t free = 0, total = 0;
    void *to_free = &free, *to_total = &total;
    EXPECT_EQ(world_.call("cuMemGetInfo_v2", {&to_free, &to_total}), 0);
    return total - free;
  }

  LyingExchange exchange_;
  World& world_;
};

TEST_F(ShareableHandles, RefusesInvalidPayloads) {
  for (const char* symbol : {kExport, kImport, kPoolExport, kPoolImport}) {
    EXPECT_EQ(ask(symbol, std::uint64_t{5}), kInvalidValue) << symbol;
    EXPECT_EQ(ask(symbol, std::array<char, 200>{}), kInvalidValue) << symbol;
  }
  ExportRequest request;
  for (const std::uint32_t step : {0u, 3u, ~0u}) {
    request.step = static_cast<ExportStep>(step);
    EXPECT_EQ(ask(kExport, request), kInvalidValue) << step;
  }
  SharingHandle token{};
  EXPECT_EQ(begin(0, &token), kInvalidValue);
  EXPECT_EQ(begin(mint(), &token), kInvalidValue);
  EXPECT_EQ(begin(world_.context(), &token), kInvalidValue);
  EXPECT_EQ(end(token), kInvalidValue);
  EXPECT_EQ(exchange_.puts, 0u);
}

TEST_F(ShareableHandles, PostedCallsThatReturnSomethingAreRefused) {
  const client::Handle memory = mint();
  ASSERT_EQ(create(memory), 0);
  ExportRequest request;
  request.object = memory;
  for (const Order order : {Order::kContext, Order::kOrderedHost}) {
    EXPECT_EQ(world_.session().post(world_.lane(), raw(kExport, order), bytes_of(request)), 0);
    EXPECT_EQ(world_.synchronize(), kInvalidValue);
    EXPECT_EQ(world_.session().post(world_.lane(), raw(kImport, order), bytes_of(ImportRequest())),
              0);
    EXPECT_EQ(world_.synchronize(), kInvalidValue);
  }
  EXPECT_EQ(exchange_.puts, 0u);
}

TEST_F(ShareableHandles, AllocationLivesUntilItsLastExportEnds) {
  const client::Handle memory = mint();
  const std::size_t before = used();
  ASSERT_EQ(create(memory), 0);
  SharingHandle first{}, second{};
  ASSERT_EQ(begin(memory, &first), 0);
  ASSERT_EQ(begin(memory, &second), 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(release(memory), 0);
  EXPECT_EQ(release(memory), kInvalidValue);
  EXPECT_EQ(used(), before + kBytes);
  EXPECT_EQ(end(first), 0);
  EXPECT_EQ(end(first), kInvalidValue);
  EXPECT_EQ(used(), before + kBytes);
  EXPECT_EQ(end(second), 0);
  EXPECT_EQ(used(), before);
  EXPECT_EQ(exchange_.drops, 2u);
}

TEST_F(ShareableHandles, ImportGivesAllocationWithItsDevice) {
  const client::Handle memory = mint(), imported = mint();
  ASSERT_EQ(create(memory), 0);
  SharingHandle token{};
  ASSERT_EQ(begin(memory, &token), 0);
  answer_honestly();
  ImportGrant grant;
  grant.device = 77;
  ASSERT_EQ(import(imported, &grant), 0);
  EXPECT_EQ(grant.object, imported);
  EXPECT_EQ(grant.device, 0u);
  // A handle in use, and handles of other kinds.
  EXPECT_NE(import(imported, &grant), 0);
  EXPECT_NE(import(0, &grant), 0);
  EXPECT_NE(import(world_.context(), &grant), 0);
  EXPECT_EQ(release(imported), 0);
  EXPECT_EQ(release(imported), kInvalidValue);
}

TEST_F(ShareableHandles, RefusesWhatIsNoAllocation) {
  const client::Handle memory = mint(), imported = mint();
  ASSERT_EQ(create(memory), 0);
  SharingHandle token{};
  ASSERT_EQ(begin(memory, &token), 0);
  const Bytes good = exchange_.given_content;
  const int file = exchange_.given_files.front().get();
  const UniqueFd empty(memfd_create("lies", MFD_CLOEXEC));
  const UniqueFd device(open("/dev/null", O_RDWR | O_CLOEXEC));
  ImportGrant grant;
  const auto refused = [&](const Bytes& content, std::vector<int> files) {
    exchange_.content = content;
    exchange_.files = std::move(files);
    return import(imported, &grant) == kInvalidValue;
  };
  EXPECT_TRUE(refused(good, {}));
  EXPECT_TRUE(refused(good, {file, file}));
  EXPECT_TRUE(refused(good, {empty.get()}));
  EXPECT_TRUE(refused(good, {device.get()}));
  EXPECT_TRUE(refused({}, {file}));
  EXPECT_TRUE(refused(Bytes(good.size() - 1), {file}));
  EXPECT_TRUE(refused(Bytes(good.size()), {file}));
  EXPECT_TRUE(refused(Bytes(server::kExchangeContentBytes), {file}));
  exchange_.content = good;
  exchange_.files = {file};
  EXPECT_EQ(import(imported, &grant), 0);
}

TEST_F(ShareableHandles, PoolAndAllocationAreNotConfused) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  auto& handles = world_.session().handles();
  const client::Handle pool = handles.mint(HandleKind::kMemoryPool, 0, nullptr);
  const client::Handle other = handles.mint(HandleKind::kMemoryPool, 0, nullptr);
  const client::Handle memory = mint(), minted = mint();
  std::uint64_t out = 0;
  void *place = &out, *described = &properties;
  ASSERT_EQ(world_.call("cuMemPoolCreate", {&place, &described}, {pool}), 0);
  ASSERT_EQ(create(memory), 0);
  ExportRequest request;
  SharingHandle token{};
  request.object = memory;
  EXPECT_EQ(ask(kPoolExport, request, &token), kInvalidValue);
  EXPECT_EQ(begin(pool, &token), kInvalidValue);
  request.object = pool;
  ASSERT_EQ(ask(kPoolExport, request, &token), 0);
  answer_honestly();
  ImportGrant grant;
  EXPECT_EQ(import(minted, &grant), kInvalidValue);
  ImportRequest wanted;
  wanted.minted = minted;
  EXPECT_NE(ask(kPoolImport, wanted, &grant), 0);
  wanted.minted = other;
  EXPECT_EQ(ask(kPoolImport, wanted, &grant), 0);
  EXPECT_EQ(grant.object, other);
  EXPECT_NE(ask(kPoolImport, wanted, &grant), 0);
  exchange_.files.clear();  // The next answer has none.
  ASSERT_EQ(begin(memory, &token), 0);
  answer_honestly();
  wanted.minted = handles.mint(HandleKind::kMemoryPool, 0, nullptr);
  EXPECT_EQ(ask(kPoolImport, wanted, &grant), kInvalidValue);
  const UniqueFd empty(memfd_create("lies", MFD_CLOEXEC));
  exchange_.files = {empty.get()};
  EXPECT_EQ(ask(kPoolImport, wanted, &grant), kInvalidValue);
}

TEST(ShareableHandlesAlone, NothingIsSharedWithoutDaemon) {
  WorldOptions options;
  options.driver = EMULATED_DEVICE;
  World world(options);
  client::CallSite site = world.site(kImport);
  site.form = protocol::Form::kRaw;
  client::Reply reply;
  EXPECT_EQ(world.session().call(world.lane(), site, bytes_of(ImportRequest()), &reply),
            kNotSupported);
}

}  // namespace
}  // namespace gpurun::callpath
