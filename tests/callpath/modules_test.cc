// Modules at the worker, over the real path: an image is named by its bytes alone. A launch reaches
// the driver only with a block of the kernel's own layout. A record of a wrong shape is never read
// beyond its end.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "protocol/calls/call.h"
#include "protocol/calls/image_bundle.h"
#include "protocol/calls/module_calls.h"
#include "server/handlers/modules/module_state.h"
#include "server/images/image_folder.h"
#include "tests/callpath/world.h"
#include "tests/support/images/tile_ir_builder.h"

namespace gpurun::callpath {
namespace {

using client::CallSite;
using client::Handle;
using client::HandleKind;
using client::Reply;
using protocol::ImageLoad;
using protocol::ImageOutcome;
using protocol::LaunchPayload;

constexpr int kInvalidValue = 1;
constexpr int kInvalidImage = 200;
constexpr int kInvalidHandle = 400;

std::string ptx(std::size_t comment_bytes = 0) {
  return ".version 8.0\n.target sm_80\n.address_size 64\n// " + std::string(comment_bytes, 'x') +
         "\n.visible .entry axpy(.param .u64 a, .param .u32 n)\n{\n ret;\n}\n";
}

class Modules : public ::testing::Test {
 protected:
  CallSite raw(const char* symbol) {
    CallSite site = over_->site(symbol);
    site.form = protocol::Form::kRaw;
    return site;
  }

  Bytes bundle_of(const std::string& text) {
    const driver_abi::Image image{
        driver_abi::ImageForm::kPtx, 0, {byte_view(text.data(), text.size())}};
    return protocol::make_bundle(image);
  }

  Handle mint(HandleKind kind) {
    return over_->session().handles().mint(kind, over_->context(), nullptr);
  }

  // One load of a module, waited for. `image` travels in the record, `bulk` beside it.
  ImageOutcome load(Handle handle, const Sha256Digest& digest, ByteView image, ByteView bulk = {}) {
    ImageLoad load;
    load.handle = handle;
    load.digest = digest;
    load.image = image;
    const Bytes payload = protocol::pack(std::span<const ImageLoad>(&load, 1));
    const ByteView part(payload);
    Reply reply;
    EXPECT_EQ(over_->session().call_with_bulk(over_->lane(), raw("cuModuleLoadDataEx"),
                                              std::span<const ByteView>(&part, 1), bulk, &reply),
              0);
    auto outcomes = protocol::unpack_outcomes(reply.payload);
    EXPECT_TRUE(outcomes.ok()) << outcomes.status().to_string();
    if (!outcomes.ok() || outcomes->size() != 1) return {};
    return std::move(outcomes->front());
  }

  int name(Handle owner, Handle handle, const std::string& kernel) {
    const Bytes payload = protocol::pack(protocol::NameRequest{owner, handle, kernel});
    Reply reply;
    return world_.session().call(world_.lane(), raw("cuModuleGetFunction"), ByteView(payload),
                                 &reply);
  }

  int launch(Handle function, std::uint64_t layout_hash, std::uint32_t parameter_bytes,
             const char* symbol = "cuLaunchKernel") {
    LaunchPayload head;
    head.function = function;
    head.layout_hash = layout_hash;
    head.parameter_bytes = parameter_bytes;
    const Bytes block((parameter_bytes + 7u) / 8 * 8);
    CallSite site = world_.site(symbol);
    site.form = protocol::Form::kLaunch;
    site.order = protocol::Order::kStream;
    const ByteView parts[] = {bytes_of(head), block};
    Reply reply;
    return world_.session().call(world_.lane(), site, std::span<const ByteView>(parts), &reply);
  }

  int unload(Handle module) { return world_.call("cuModuleUnload", {&module}); }

  World world_;
  World* over_ = &world_;  // The target of loads.
};

TEST_F(Modules, LoadReturnsKernelsAndLayouts) {
  const Bytes bundle = bundle_of(ptx());
  const Handle module = mint(HandleKind::kModule);
  const ImageOutcome outcome = load(module, sha256(bundle), bundle);
  EXPECT_EQ(outcome.result, 0);
  EXPECT_TRUE(outcome.complete);
  EXPECT_TRUE(outcome.kept);
  ASSERT_EQ(outcome.kernels.size(), 1u);
  const protocol::KernelDescription& kernel = outcome.kernels.front();
  EXPECT_EQ(kernel.name, "axpy");
  EXPECT_TRUE(kernel.layout_known);
  EXPECT_EQ(kernel.parameters, (std::vector<protocol::KernelParameter>{{0, 8}, {8, 4}}));
  EXPECT_EQ(kernel.attributes.size(), protocol::kFunctionAttributes);
}

// Only the driver judges its contents.
TEST_F(Modules, TileIrReachesTheDriver) {
  const std::string tile_ir = test::build_tile_ir({{2, "functions"}, {1, "strings"}});
  const driver_abi::Image image{
      driver_abi::ImageForm::kTileIr, 0, {byte_view(tile_ir.data(), tile_ir.size())}};
  const Bytes bundle = protocol::make_bundle(image);
  const Handle module = mint(HandleKind::kModule);
  const ImageOutcome outcome = load(module, sha256(bundle), bundle);
  EXPECT_EQ(outcome.result, 0);
  EXPECT_EQ(name(module, mint(HandleKind::kFunction), "a_tile_kernel"), 0);
  EXPECT_EQ(unload(module), 0);
}

TEST_F(Modules, ImageIsRequestedOnceAndThenFoundByDigest) {
  const Bytes bundle = bundle_of(ptx(100'000));
  const Sha256Digest digest = sha256(bundle);
  const Handle module = mint(HandleKind::kModule);
  EXPECT_TRUE(load(module, digest, {}).missing);
  const ImageOutcome sent = load(module, digest, {}, bundle);
  EXPECT_EQ(sent.result, 0);
  EXPECT_FALSE(sent.missing);
  const ImageOutcome again = load(mint(HandleKind::kModule), digest, {});
  EXPECT_EQ(again.result, 0);
  EXPECT_FALSE(again.missing);
  EXPECT_EQ(again.kernels.size(), 1u);
}

// For the worker of the next World.
const char* images_path = nullptr;

void keep_images(server::WorkerOptions& options) {
  auto folder = server::ImageFolder::open(images_path, std::uint64_t{1} << 30);
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  auto* state = static_cast<server::HandlerState*>(options.user);
  state->modules().images().set_cache(*std::move(folder));
}

class CachedModules : public Modules {
 protected:
  CachedModules() {
    path_ = std::filesystem::temp_directory_path() / "gpurun-modules-XXXXXX";
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
    images_path = path_.c_str();
  }
  ~CachedModules() override {
    next_.reset();
    std::filesystem::remove_all(path_);
  }
  // Another session with another worker.
  void start_next() {
    next_.reset();
    WorldOptions options;
    options.prepare = &keep_images;
    next_ = std::make_unique<World>(options);
    over_ = next_.get();
  }
  std::string file() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) return entry.path();
    return {};
  }

  std::string path_;
  std::unique_ptr<World> next_;
};

TEST_F(CachedModules, NextWorkerFindsImagesInCache) {
  const Bytes bundle = bundle_of(ptx(100'000));
  const Sha256Digest digest = sha256(bundle);
  start_next();
  EXPECT_TRUE(load(mint(HandleKind::kModule), digest, {}).missing);
  EXPECT_EQ(load(mint(HandleKind::kModule), digest, {}, bundle).result, 0);
  const Bytes small = bundle_of(ptx());
  EXPECT_EQ(load(mint(HandleKind::kModule), sha256(small), small).result, 0);
  start_next();
  for (const Sha256Digest& known : {digest, sha256(small)}) {
    const ImageOutcome again = load(mint(HandleKind::kModule), known, {});
    EXPECT_FALSE(again.missing);
    EXPECT_EQ(again.result, 0);
    EXPECT_TRUE(again.kept);
    EXPECT_EQ(again.kernels.size(), 1u);
  }
}

TEST_F(CachedModules, DamagedFileIsRequestedAgain) {
  const Bytes bundle = bundle_of(ptx(100'000));
  const Sha256Digest digest = sha256(bundle);
  start_next();
  EXPECT_EQ(load(mint(HandleKind::kModule), digest, {}, bundle).result, 0);
  ASSERT_FALSE(file().empty());
  std::filesystem::resize_file(file(), 50'000);
  start_next();
  EXPECT_TRUE(load(mint(HandleKind::kModule), digest, {}).missing);
  EXPECT_TRUE(file().empty());
  EXPECT_EQ(load(mint(HandleKind::kModule), digest, {}, bundle).result, 0);
  start_next();
  EXPECT_FALSE(load(mint(HandleKind::kModule), digest, {}).missing);
}

TEST_F(CachedModules, InvalidImageIsNotCached) {
  start_next();
  Bytes bundle = bundle_of(ptx(100'000));
  bundle.resize(bundle.size() - 1);
  EXPECT_EQ(load(mint(HandleKind::kModule), sha256(bundle), {}, bundle).result, kInvalidImage);
  EXPECT_TRUE(file().empty());
}

TEST_F(Modules, BytesThatDoNotMatchDigestAreRefused) {
  const Bytes bundle = bundle_of(ptx());
  Sha256Digest digest = sha256(bundle);
  digest[0] ^= 1;
  EXPECT_EQ(load(mint(HandleKind::kModule), digest, bundle).result, kInvalidImage);
  EXPECT_TRUE(load(mint(HandleKind::kModule), digest, {}).missing);
}

TEST_F(Modules, TruncatedBundleIsRefused) {
  Bytes bundle = bundle_of(ptx());
  bundle.resize(bundle.size() - 1);
  EXPECT_EQ(load(mint(HandleKind::kModule), sha256(bundle), bundle).result, kInvalidImage);
}

TEST_F(Modules, LaunchMustMatchLayoutOfKernel) {
  const Bytes bundle = bundle_of(ptx());
  const Handle module = mint(HandleKind::kModule);
  const ImageOutcome outcome = load(module, sha256(bundle), bundle);
  ASSERT_EQ(outcome.kernels.size(), 1u);
  const std::uint64_t hash = protocol::layout_hash(outcome.kernels.front().parameters);
  const Handle function = mint(HandleKind::kFunction);
  ASSERT_EQ(name(module, function, "axpy"), 0);
  EXPECT_EQ(launch(function, hash, 12), 0);
  EXPECT_EQ(launch(function, hash + 1, 12), kInvalidValue);
  EXPECT_EQ(launch(function, hash, 8), kInvalidValue);
  EXPECT_EQ(launch(function, 0, 16), 0);  // The form decides how a record is read, whatever
                                          // function it names.
  EXPECT_EQ(launch(module, hash, 12), kInvalidHandle);
  // The form decides what a record is, whatever function it says it is of.
  for (const char* other : {"cuMemFree_v2", "cuModuleUnload", "cuCtxSynchronize"}) {
    EXPECT_EQ(launch(function, hash, 12, other), 0) << other;
    EXPECT_EQ(launch(function, hash + 1, 12, other), kInvalidValue) << other;
  }
  EXPECT_EQ(unload(module), 0);
  EXPECT_EQ(launch(function, hash, 12), kInvalidHandle);
}

TEST_F(Modules, PostedLoadOfKnownImageSucceeds) {
  const Bytes bundle = bundle_of(ptx());
  const ImageOutcome outcome = load(mint(HandleKind::kModule), sha256(bundle), bundle);
  ASSERT_EQ(outcome.kernels.size(), 1u);
  ImageLoad again;
  again.handle = mint(HandleKind::kModule);
  again.digest = sha256(bundle);
  CallSite site = raw("cuModuleLoadDataEx");
  site.order = protocol::Order::kOrderedHost;
  const Bytes payload = protocol::pack(std::span<const ImageLoad>(&again, 1));
  EXPECT_EQ(world_.session().post(world_.lane(), site, ByteView(payload)), 0);
  const Handle function = mint(HandleKind::kFunction);
  EXPECT_EQ(name(again.handle, function, "axpy"), 0);
  EXPECT_EQ(launch(function, protocol::layout_hash(outcome.kernels.front().parameters), 12), 0);
}

TEST_F(Modules, FailedPostedLoadIsReportedAtFirstUse) {
  ImageLoad load;
  load.handle = mint(HandleKind::kModule);
  const Bytes payload = protocol::pack(std::span<const ImageLoad>(&load, 1));
  EXPECT_EQ(world_.session().post(world_.lane(), raw("cuModuleLoadDataEx"), ByteView(payload)), 0);
  EXPECT_EQ(name(load.handle, mint(HandleKind::kFunction), "axpy"), kInvalidImage);
}

TEST_F(Modules, MalformedRecordsAreRefused) {
  Reply reply;
  const Bytes noise(24, std::byte{0x5d});
  for (const char* symbol :
       {"cuModuleLoadDataEx", "cuLibraryLoadData", "cuModuleGetFunction", "cuLibraryGetModule",
        "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchHostFunc", "cuOccupancyMaxActiveClusters"}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, noise.size()}) {
      EXPECT_EQ(
          world_.session().call(world_.lane(), raw(symbol), ByteView(noise).first(bytes), &reply),
          kInvalidValue)
          << symbol << " " << bytes;
    }
  }
  EXPECT_EQ(name(mint(HandleKind::kModule), mint(HandleKind::kFunction), "axpy"), kInvalidHandle);
  EXPECT_EQ(world_.synchronize(), 0);
}

// They end with the context.
constexpr std::uint16_t kCountHandles = 4000;
void count_handles(server::WorkerOptions& options) {
  options.handlers.by_opcode[kCountHandles] = [](server::Call& call) {
    const std::uint64_t count = call.handles().size();
    call.set_reply(bytes_of(count));
    return server::CallOutcome::done(0);
  };
}

TEST_F(Modules, ModulesEndWithTheirContext) {
  WorldOptions options;
  options.prepare = &count_handles;
  World world(options);
  over_ = &world;
  const auto count = [&world] {
    CallSite site;
    site.opcode = kCountHandles;
    site.form = protocol::Form::kRaw;
    Reply reply;
    std::uint64_t value = 0;
    EXPECT_EQ(world.session().call(world.lane(), site, ByteView(), &reply), 0);
    if (reply.payload.size() == sizeof value) {
      std::memcpy(&value, reply.payload.data(), sizeof value);
    }
    return value;
  };
  const Bytes bundle = bundle_of(ptx());
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      const Handle module = mint(HandleKind::kModule);
      EXPECT_EQ(load(module, sha256(bundle), bundle).result, 0);
      const Bytes named =
          protocol::pack(protocol::NameRequest{module, mint(HandleKind::kFunction), "axpy"});
      Reply reply;
      EXPECT_EQ(
          world.session().call(world.lane(), raw("cuModuleGetFunction"), ByteView(named), &reply),
          0);
    }
    EXPECT_EQ(count(), 9u);  // With the context.
    int ordinal = 0;
    EXPECT_EQ(world.call("cuDevicePrimaryCtxRelease_v2", {&ordinal}), 0);
    EXPECT_EQ(count(), 0u);
    std::uint64_t out = 0;
    void* place = &out;
    EXPECT_EQ(world.call("cuDevicePrimaryCtxRetain", {&place, &ordinal}, {world.context()}), 0);
  }
}

}  // namespace
}  // namespace gpurun::callpath
