// printf of kernels: CUDA's packing of arguments, every conversion, and hostile formats.
#include "emulated/runtime/print.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace gpurun::emulated {
namespace {

// Packs as nvcc does for vprintf: each argument at a multiple of its size.
class Pack {
 public:
  template <typename T>
  Pack& add(T value) {
    while (bytes_.size() % sizeof(T) != 0) bytes_.push_back(0xee);
    const auto* raw = reinterpret_cast<const std::uint8_t*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
    return *this;
  }
  const std::uint8_t* data() const { return bytes_.data(); }

 private:
  std::vector<std::uint8_t> bytes_;
};

std::string format(const char* text, const Pack& pack, int count) {
  std::string out;
  EXPECT_EQ(format_device_print(text, pack.data(), &out), count) << text;
  return out;
}

TEST(DevicePrint, FormatsTextWithoutArguments) {
  EXPECT_EQ(format("100%% done\n", Pack(), 0), "100% done\n");
  EXPECT_EQ(format("", Pack(), 0), "");
}

TEST(DevicePrint, ArgumentsAreAlignedToTheirSize) {
  EXPECT_EQ(
      format("%d %f %c %lld %u", Pack().add(-3).add(2.5).add(int{'x'}).add(1LL << 40).add(7u), 5),
      "-3 2.500000 x 1099511627776 7");
}

TEST(DevicePrint, LengthModifiersSetArgumentWidth) {
  EXPECT_EQ(format("%hhd %hu %ld %zx", Pack().add(0x1ff).add(0x12345).add(-5L).add(255UL), 4),
            "-1 9029 -5 ff");
}

TEST(DevicePrint, AppliesFlagsWidthAndPrecision) {
  EXPECT_EQ(format("[%+05d|%-6d|%#x|% d]", Pack().add(42).add(7).add(255).add(3), 4),
            "[+0042|7     |0xff| 3]");
  EXPECT_EQ(format("[%8.3f|%.2e|%G|%a]", Pack().add(3.14159).add(12345.678).add(1e-10).add(1.0), 4),
            "[   3.142|1.23e+04|1E-10|0x1p+0]");
  EXPECT_EQ(format("[%*d|%.*f|%*d]", Pack().add(5).add(42).add(1).add(2.55).add(-4).add(1), 6),
            "[   42|2.5|1   ]");
}

TEST(DevicePrint, FormatsStringsAndPointers) {
  const char* name = "kernel";
  EXPECT_EQ(format("%s|%.3s|%8s|%s|%p",
                   Pack().add(name).add(name).add(name).add(nullptr).add(std::uint64_t{0xabc0}), 5),
            "kernel|ker|  kernel|(null)|0xabc0");
}

TEST(DevicePrint, RejectsBadConversionsAndBoundsOutput) {
  EXPECT_EQ(format("a%n", Pack().add(std::uint64_t{1}), -1), "a");
  EXPECT_EQ(format("a%", Pack(), -1), "a");
  EXPECT_EQ(format("%ll", Pack(), -1), "");
  EXPECT_LE(format("%2000000000d", Pack().add(1), 1).size(), 4096u);
  EXPECT_LE(format("%.2000000000d", Pack().add(1), 1).size(), 4097u);
  EXPECT_LE(format("%*d", Pack().add(-2147483647 - 1).add(1), 2).size(), 4096u);
}

}  // namespace
}  // namespace gpurun::emulated
