// Module calls: a bundle from a hostile peer is accepted only if every piece ends where it says. No
// number in a record can lead a launch or an allocation beyond its bound.
#include "protocol/calls/module_calls.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "driver_abi/fatbin.h"
#include "protocol/calls/image_bundle.h"
#include "protocol/limits.h"
#include "tests/support/images/tile_ir_builder.h"

namespace gpurun::protocol {
namespace {

using driver_abi::Image;
using driver_abi::ImageForm;

ByteView view(const std::string& text) { return byte_view(text.data(), text.size()); }

std::string container(const std::string& entries) {
  std::string bytes(16, '\0');
  const std::uint32_t magic = driver_abi::kFatbinContainerMagic;
  const std::uint16_t version = 1;
  const std::uint16_t header = 16;
  const std::uint64_t size = entries.size();
  std::memcpy(bytes.data(), &magic, 4);
  std::memcpy(bytes.data() + 4, &version, 2);
  std::memcpy(bytes.data() + 6, &header, 2);
  std::memcpy(bytes.data() + 8, &size, 8);
  return bytes + entries;
}

TEST(ImageBundle, TerminatesPtxWithNul) {
  for (std::size_t length = 30; length < 50; ++length) {
    const std::string ptx = ".version 8.0\n.target sm_80\n//" + std::string(length, 'x');
    const Bytes bundle = make_bundle(Image{ImageForm::kPtx, 0, {view(ptx)}});
    const Result<Image> opened = open_bundle(bundle);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    const DriverImage driver(*opened);
    EXPECT_STREQ(static_cast<const char*>(driver.code()), ptx.c_str());
  }
}

TEST(ImageBundle, RebuildsVersion2Wrapper) {
  const std::string first = container("linked code");
  const std::string second = container("an object's PTX");
  const Image image{ImageForm::kWrapper, 2, {view(first), view(second)}};
  const Bytes bundle = make_bundle(image);
  EXPECT_EQ(bundle.size(), bundle_bytes(image));
  EXPECT_EQ(sha256(bundle), bundle_digest(image));
  const Result<Image> opened = open_bundle(bundle);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const DriverImage driver(*opened);
  // The driver's own reader finds the same pieces.
  const Result<Image> seen = driver_abi::image_at(driver.code());
  ASSERT_TRUE(seen.ok()) << seen.status().to_string();
  ASSERT_EQ(seen->pieces.size(), 2u);
  EXPECT_EQ(std::memcmp(seen->pieces[1].data(), second.data(), second.size()), 0);
}

TEST(ImageBundle, AcceptsTileIrOfExactLength) {
  const std::string tile_ir = test::build_tile_ir({{2, "functions"}, {1, "strings"}});
  const Bytes bundle = make_bundle(Image{ImageForm::kTileIr, 0, {view(tile_ir)}});
  const Result<Image> opened = open_bundle(bundle);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->form, ImageForm::kTileIr);
  const DriverImage driver(*opened);
  EXPECT_EQ(std::memcmp(driver.code(), tile_ir.data(), tile_ir.size()), 0);
  const std::string cut = tile_ir.substr(0, tile_ir.size() - 1);
  EXPECT_FALSE(open_bundle(make_bundle(Image{ImageForm::kTileIr, 0, {view(cut)}})).ok());
  const std::string more = tile_ir + "x";
  EXPECT_FALSE(open_bundle(make_bundle(Image{ImageForm::kTileIr, 0, {view(more)}})).ok());
}

TEST(ImageBundle, RefusesTruncatedOrChangedBundle) {
  const std::string piece = container("0123456789");
  const Bytes whole = make_bundle(Image{ImageForm::kWrapper, 1, {view(piece)}});
  ASSERT_TRUE(open_bundle(whole).ok());
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(open_bundle(ByteView(whole).first(bytes)).ok()) << bytes;
  }
  // Any one changed number: the form, the version, the count, the size, or a container's size.
  for (const std::size_t at : {0u, 4u, 8u, 12u, 16u, 23u, 40u, 47u}) {
    Bytes changed = whole;
    changed[at] = std::byte{0x7f};
    EXPECT_FALSE(open_bundle(changed).ok()) << at;
  }
}

TEST(ModuleCalls, RoundTripLoadAndKernelTable) {
  ImageLoad load;
  load.handle = 77;
  load.digest[31] = 9;
  const std::string image = "image";
  load.image = view(image);
  load.options = {{7, 3}};
  load.info_log_bytes = 100;
  const Bytes request = pack(std::span<const ImageLoad>(&load, 1));
  const auto loads = unpack_loads(request);
  ASSERT_TRUE(loads.ok()) << loads.status().to_string();
  ASSERT_EQ(loads->size(), 1u);
  EXPECT_EQ(loads->front().handle, 77u);
  EXPECT_EQ(loads->front().digest, load.digest);
  EXPECT_EQ(loads->front().image.size(), 5u);
  EXPECT_EQ(loads->front().options.front().value, 3u);

  ImageOutcome outcome;
  outcome.complete = true;
  outcome.kernels.push_back({"axpy", true, true, {{0, 8}, {8, 4}}, {1024, 0}});
  const Bytes reply = pack(std::span<const ImageOutcome>(&outcome, 1));
  const auto outcomes = unpack_outcomes(reply);
  ASSERT_TRUE(outcomes.ok()) << outcomes.status().to_string();
  const KernelDescription& kernel = outcomes->front().kernels.front();
  EXPECT_EQ(kernel.name, "axpy");
  EXPECT_EQ(kernel.parameters, outcome.kernels.front().parameters);
  EXPECT_EQ(parameter_block_bytes(kernel.parameters), 12u);
  EXPECT_EQ(kernel.attributes.front(), 1024);
}

TEST(ModuleCalls, RoundTripLargestKernelTable) {
  ImageOutcome outcome;
  for (std::size_t i = 0; i < kDescribedKernelsMax; ++i) {
    KernelDescription kernel{"kernel" + std::to_string(i), true, true, {}, {}};
    for (std::uint32_t j = 0; j < 20; ++j) kernel.parameters.push_back({8 * j, 8});
    kernel.attributes.assign(kFunctionAttributes, 1);
    outcome.kernels.push_back(std::move(kernel));
  }
  const auto outcomes = unpack_outcomes(pack(std::span<const ImageOutcome>(&outcome, 1)));
  ASSERT_TRUE(outcomes.ok()) << outcomes.status().to_string();
  EXPECT_EQ(outcomes->front().kernels.size(), kDescribedKernelsMax);
}

TEST(ModuleCalls, RefuseParameterBeyondLargestBlock) {
  constexpr auto kMax = static_cast<std::uint32_t>(limits::kKernelParameterBytesMax);
  KernelDescription kernel{"k", true, true, {{kMax - 4, 4}}, {}};
  EXPECT_TRUE(unpack_kernel(pack(kernel)).ok());
  kernel.parameters = {{kMax - 4, 5}};
  EXPECT_FALSE(unpack_kernel(pack(kernel)).ok());
  kernel.parameters = {{0xffffffff, 4}};
  EXPECT_FALSE(unpack_kernel(pack(kernel)).ok());
}

TEST(ModuleCalls, RoundTripKernelNodeOfExactLength) {
  KernelNode node;
  node.graph = 3;
  node.dependencies = {4, 5};
  node.block.assign(12, std::byte{7});
  node.launch.parameter_bytes = 12;
  const auto carried = unpack_kernel_node(pack(node));
  ASSERT_TRUE(carried.ok()) << carried.status().to_string();
  EXPECT_EQ(carried->dependencies, node.dependencies);
  EXPECT_EQ(carried->block, node.block);
  node.launch.parameter_bytes = 13;
  EXPECT_FALSE(unpack_kernel_node(pack(node)).ok());
  node.launch.parameter_bytes = 12;
  node.launch.attribute_count = 1;
  EXPECT_FALSE(unpack_kernel_node(pack(node)).ok());
}

TEST(ModuleCalls, RefuseInvalidMessages) {
  EXPECT_FALSE(unpack_loads({}).ok());
  const Bytes noise(64, std::byte{0xee});
  EXPECT_FALSE(unpack_loads(noise).ok());
  EXPECT_FALSE(unpack_outcomes(noise).ok());
  EXPECT_FALSE(unpack_name_request(noise).ok());
  std::vector<ImageLoad> many(kLoadsMax + 1);
  EXPECT_FALSE(unpack_loads(pack(std::span<const ImageLoad>(many))).ok());
  EXPECT_FALSE(unpack_name_request(pack(NameRequest{1, 2, std::string("a\0b", 3)})).ok());
}

TEST(ModuleCalls, LayoutHashDiffersBetweenLayouts) {
  const std::vector<KernelParameter> one = {{0, 8}, {8, 8}};
  const std::vector<KernelParameter> other = {{0, 8}, {8, 4}};
  EXPECT_NE(layout_hash(one), layout_hash(other));
  EXPECT_NE(layout_hash({}), 0u);
}

}  // namespace
}  // namespace gpurun::protocol
