// PTX selection: chooses the PTX with which closed libraries run on the emulated device.
#include "driver_abi/ptx_selection.h"

#include <gtest/gtest.h>

namespace gpurun::driver_abi {
namespace {

FatbinEntry entry(std::uint32_t arch, std::uint64_t flags = 0, FatbinKind kind = FatbinKind::kPtx) {
  FatbinEntry made{};
  made.kind = kind;
  made.arch = arch;
  made.flags = flags;
  return made;
}
constexpr std::uint64_t kA = kFatbinFlagArchSpecific;
constexpr std::uint64_t kF = kFatbinFlagFamilySpecific;

TEST(PtxSelectionTest, SelectsHighestPlainPtxForDevice) {
  EXPECT_EQ(select_ptx({entry(75), entry(90), entry(80)}), 1U);
  EXPECT_EQ(select_ptx({entry(75), entry(90), entry(80)}, {.device_arch = 86}), 2U);
  EXPECT_EQ(select_ptx({entry(90, 0, FatbinKind::kElf), entry(75)}), 1U);
  EXPECT_EQ(select_ptx({entry(80), entry(80)}), 0U);
}

TEST(PtxSelectionTest, FallsBackToNewerPlainPtx) {
  EXPECT_EQ(select_ptx({entry(103), entry(100)}, {.device_arch = 90}), 1U);
  EXPECT_EQ(select_ptx({entry(100)}, {.device_arch = 90, .accept_newer = false}), std::nullopt);
  EXPECT_EQ(select_ptx({entry(100), entry(75)}, {.device_arch = 90}), 1U);
}

TEST(PtxSelectionTest, PrefersPlainOverFamilySpecificPtx) {
  EXPECT_EQ(select_ptx({entry(120, kF)}), 0U);
  EXPECT_EQ(select_ptx({entry(120, kF), entry(75)}), 1U);
  // Even portable PTX for a newer device comes first, because all its instructions are portable.
  EXPECT_EQ(select_ptx({entry(120, kF), entry(103)}, {.device_arch = 90}), 1U);
  EXPECT_EQ(select_ptx({entry(100, kF), entry(103, kF)}), std::nullopt);
  EXPECT_EQ(select_ptx({entry(120, kF)}, {.family_major = 0}), std::nullopt);
}

TEST(PtxSelectionTest, ArchSpecificPtxNeedsOptIn) {
  EXPECT_EQ(select_ptx({entry(90, kA), entry(100, kA), entry(120, kA)}), std::nullopt);
  EXPECT_EQ(select_ptx({entry(90, kA)}, {.accept_arch_specific = true}), 0U);
  EXPECT_EQ(select_ptx({}), std::nullopt);
}

}  // namespace
}  // namespace gpurun::driver_abi
