// Fat binary reader: reads what nvcc writes. It refuses invalid containers without a read outside
// them, and without an allocation of a size that the input alone decides.
#include "driver_abi/fatbin.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/images/fatbin_builder.h"

namespace gpurun::driver_abi {
namespace {

using test::build_container;
using test::EntrySpec;
using test::Exact;
using test::Packing;

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

const std::string kText = ".version 9.0\n.target sm_80\n" + std::string(3000, 'x') + '\0';

std::string three_packings() {
  return build_container({{.content = kText, .packing = Packing::kPlain},
                          {.arch = 90, .content = kText, .packing = Packing::kLz4},
                          {.arch = 120,
                           .flags = 0x200011,
                           .content = kText,
                           .packing = Packing::kZstd,
                           .name = "k.cu",
                           .options = "--compile-only"},
                          {.kind = 2, .arch = 90, .flags = 0x100011, .content = "\177ELFmachine"},
                          {.kind = 8, .arch = 75, .content = "BC"}});
}

TEST(FatbinTest, ReadsEveryPackingAndKind) {
  const Exact image(three_packings());
  const auto entries = read_fatbin(image.view());
  ASSERT_TRUE(entries.ok()) << entries.status().to_string();
  ASSERT_EQ(entries->size(), 5U);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto content = fatbin_content((*entries)[i]);
    ASSERT_TRUE(content.ok()) << i << ": " << content.status().to_string();
    EXPECT_EQ(text_of(*content).substr(0, kText.size()), kText) << i;
  }
  EXPECT_EQ((*entries)[1].compression, FatbinCompression::kLz4);
  EXPECT_EQ((*entries)[2].compression, FatbinCompression::kZstd);
  EXPECT_EQ((*entries)[2].name, "k.cu");
  EXPECT_EQ((*entries)[2].options, "--compile-only");
  EXPECT_EQ((*entries)[2].major, 9);
  EXPECT_TRUE((*entries)[2].family_specific());
  EXPECT_EQ((*entries)[3].kind, FatbinKind::kElf);
  EXPECT_TRUE((*entries)[3].arch_specific());
  EXPECT_EQ(describe_entries(*entries), "ptx 80, ptx 90, ptx 120f, elf 90a, nvvm 75");
}

// nvcc's device-link stub is a valid container without entries.
TEST(FatbinTest, EmptyContainerIsValid) {
  const Exact image(build_container({}));
  const auto entries = read_fatbin(image.view());
  ASSERT_TRUE(entries.ok());
  EXPECT_TRUE(entries->empty());
  EXPECT_EQ(describe_entries(*entries), "nothing");
}

TEST(FatbinTest, EveryTruncationIsRefused) {
  const std::string whole = three_packings();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Exact cut(whole.substr(0, length));
    EXPECT_FALSE(read_fatbin(cut.view()).ok()) << length;
  }
}

// Wrong lengths, at every position of the headers, are detected from the bytes that are present.
TEST(FatbinTest, SurvivesEveryChangedByte) {
  const std::string whole = three_packings();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char with : {'\xff', '\0', '\x80'}) {
      std::string bad = whole;
      bad[at] = with;
      const Exact image(bad);
      const auto entries = read_fatbin(image.view());
      if (!entries.ok()) {
        ++refused;
        continue;
      }
      for (const FatbinEntry& entry : *entries) {
        // It is enough that nothing crashes. The sanitizer build detects accesses outside.
        if (!fatbin_content(entry, 1 << 20).ok()) ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100U);
}

// A small file must not make us allocate the size that it claims.
TEST(FatbinTest, ClaimedSizeIsBoundedByLimitAndInput) {
  for (const Packing packing : {Packing::kLz4, Packing::kZstd}) {
    std::string image = build_container({{.content = kText, .packing = packing}});
    test::put(&image, 16 + 56, std::uint64_t{1} << 40, 8);
    const Exact exact(image);
    const auto entries = read_fatbin(exact.view());
    ASSERT_TRUE(entries.ok());
    EXPECT_EQ(fatbin_content((*entries)[0]).status().code(), Code::kTooLarge);
    // Without a limit the input itself shows that it cannot grow that much.
    EXPECT_EQ(fatbin_content((*entries)[0], SIZE_MAX).status().cuda_error(), 200);
  }
  const Exact exact(build_container({{.content = kText}}));
  const auto entries = read_fatbin(exact.view());
  EXPECT_EQ(fatbin_content((*entries)[0], 100).status().code(), Code::kTooLarge);
}

TEST(FatbinTest, ContentOfWrongSizeIsRefused) {
  for (const Packing packing : {Packing::kLz4, Packing::kZstd}) {
    for (const int difference : {-1, 1}) {
      std::string image = build_container({{.content = kText, .packing = packing}});
      test::put(&image, 16 + 56, kText.size() + static_cast<std::size_t>(difference), 8);
      const Exact exact(image);
      const auto entries = read_fatbin(exact.view());
      ASSERT_TRUE(entries.ok());
      EXPECT_FALSE(fatbin_content((*entries)[0]).ok()) << difference;
    }
  }
}

TEST(FatbinTest, TooManyEntriesAreRefused) {
  std::string entry = test::build_entry({.content = ""});
  std::string image = build_container({});
  for (std::size_t i = 0; i <= kFatbinEntriesMax; ++i) image += entry;
  test::put(&image, 8, image.size() - 16, 8);
  const Exact exact(image);
  EXPECT_EQ(read_fatbin(exact.view()).status().code(), Code::kTooLarge);
}

#ifdef GPURUN_TEST_NVCC
// Reads the PTX that this machine's nvcc writes, in each of its compression modes.
TEST(FatbinTest, ReadsNvccOutput) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / "gpurun_fatbin_test";
  fs::create_directories(folder);
  const fs::path source = folder / "k.cu";
  std::ofstream(source) << "extern \"C\" __global__ void add(float* a, int n) {\n"
                           "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                           "  if (i < n) a[i] += 1;\n}\n";
  for (const std::string flags :
       {"-compress-mode=none", "-compress-mode=speed", "-compress-mode=size",
        "-compress-mode=balance", "-compress-mode=default", "-G", "-dc"}) {
    const fs::path image = folder / "k.fatbin";
    const std::string command =
        std::string(GPURUN_TEST_NVCC) + " -fatbin " + flags +
        " -gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=sm_90 -o " +
        image.string() + " " + source.string();
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    std::ifstream file(image, std::ios::binary);
    const Exact bytes(std::string(std::istreambuf_iterator<char>(file), {}));
    const auto entries = read_fatbin(bytes.view());
    ASSERT_TRUE(entries.ok()) << flags << ": " << entries.status().to_string();
    std::size_t ptx_count = 0;
    std::size_t elf_count = 0;
    for (const FatbinEntry& entry : *entries) {
      const auto content = fatbin_content(entry);
      ASSERT_TRUE(content.ok()) << flags << ": " << content.status().to_string();
      const std::string text = text_of(*content);
      if (entry.kind == FatbinKind::kPtx) {
        ++ptx_count;
        EXPECT_EQ(entry.arch, 80U);
        EXPECT_NE(text.find(".entry add"), std::string::npos) << flags;
        EXPECT_NE(text.find('\0'), std::string::npos) << flags;
        EXPECT_EQ(entry.options.find("--compile-only") != std::string_view::npos, flags == "-dc");
      } else {
        ++elf_count;
        EXPECT_EQ(text.substr(0, 4), "\177ELF") << flags;
      }
    }
    EXPECT_EQ(ptx_count, 1U) << flags;
    EXPECT_EQ(elf_count, 1U) << flags;
  }
  fs::remove_all(folder);
}
#endif

}  // namespace
}  // namespace gpurun::driver_abi
