// Cubin with PTX: the PTX that machine code carries is found in gpurun's own section and in those
// of ptxas's debug information, and damaged machine code is refused without a read beyond its end.
#include "driver_abi/cubin_with_ptx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "driver_abi/linked_image.h"
#include "tests/support/images/object_builder.h"

namespace gpurun::driver_abi {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using test::build_object;

ByteView view(const std::string& text) { return byte_view(text.data(), text.size()); }

std::vector<std::string> texts_in(const std::string& image) {
  std::vector<std::string> texts;
  const Result<Bytes> carried = carried_ptx(view(image));
  if (!carried.ok()) return {carried.status().message()};
  if (carried->empty()) return texts;
  const auto entries = read_fatbin(ByteView(carried->data(), carried->size()));
  if (!entries.ok()) return {entries.status().message()};
  for (const FatbinEntry& entry : *entries) {
    EXPECT_TRUE(is_linked_entry(entry));
    texts.push_back(*ptx_text(entry));
  }
  return texts;
}

std::string lines(std::string text) {
  for (char& each : text) {
    if (each == '\n') each = '\0';
  }
  return text;
}

constexpr char kOne[] = "\n\n.version 9.0\n.target sm_80\n.entry one()\n{\nret;\n}\n";
constexpr char kTwo[] = ".version 9.0\n.target sm_80\n.entry two()\n{\nret;\n}\n";

TEST(CarriedPtx, IsThatOfLineInformation) {
  EXPECT_THAT(texts_in(build_object({{".text.one", "code"}, {".nv_debug_ptx_txt", lines(kOne)}})),
              ElementsAre(kOne));
}

TEST(CarriedPtx, IsThatOfEachLinkedPart) {
  EXPECT_THAT(texts_in(build_object({{".nv_debug_ptx_txt.683444573", lines(kOne)},
                                     {".nv_debug_ptx_txt.2188737624", lines(kTwo)}})),
              ElementsAre(kOne, kTwo));
}

TEST(CarriedPtx, OwnSectionComesFirst) {
  const std::string code = build_object({{".nv_debug_ptx_txt", lines(kOne)}});
  const Result<Bytes> with_ptx = cubin_with_ptx(view(code), {kTwo});
  ASSERT_TRUE(with_ptx.ok());
  const std::string image(reinterpret_cast<const char*>(with_ptx->data()), with_ptx->size());
  EXPECT_THAT(texts_in(image), ElementsAre(kTwo));
}

std::string image_of(const std::vector<std::string>& texts) {
  const Bytes image = linked_image(texts);
  return {reinterpret_cast<const char*>(image.data()), image.size()};
}

// As nvlink joins the sections of its inputs.
TEST(CarriedPtx, IsThatOfEachJoinedSection) {
  const std::string joined = image_of({kOne}) + image_of({kTwo, kOne});
  EXPECT_THAT(texts_in(build_object({{kPtxSection, joined}})), ElementsAre(kOne, kTwo, kOne));
  const std::string cut = joined.substr(0, joined.size() - 8);
  EXPECT_FALSE(carried_ptx(view(build_object({{kPtxSection, cut}}))).ok());
  EXPECT_FALSE(carried_ptx(view(build_object({{kPtxSection, "no image of ours"}}))).ok());
}

TEST(CarriedPtx, IsEmptyWithoutPtx) {
  EXPECT_THAT(texts_in(build_object({{".text.one", "code"}})), IsEmpty());
  EXPECT_THAT(texts_in(build_object({{".nv_debug_ptx_txt", ""}})), IsEmpty());
  EXPECT_THAT(texts_in(build_object({{".nv_debug_ptx_txt", "no text of PTX"}})), IsEmpty());
  EXPECT_THAT(texts_in(build_object({{".nv_debug_ptx_txts", lines(kOne)}})), IsEmpty());
}

TEST(CarriedPtx, DamagedMachineCodeIsRefused) {
  const std::string whole = build_object({{".nv_debug_ptx_txt", lines(kOne)}});
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const std::string part = whole.substr(0, bytes);
    EXPECT_FALSE(carried_ptx(view(part)).ok()) << bytes;
  }
}

}  // namespace
}  // namespace gpurun::driver_abi
