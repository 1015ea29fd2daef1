// Tile IR layout: an image is measured from its bare pointer. A false length gives an error with
// its place, and no byte behind the end is read.
#include "driver_abi/tile_ir_layout.h"

#include <gtest/gtest.h>

#include "driver_abi/image_length.h"
#include "tests/support/images/fatbin_builder.h"
#include "tests/support/images/tile_ir_builder.h"

namespace gpurun::driver_abi {
namespace {

using test::build_tile_ir;
using test::Exact;

std::string text_of(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The reason why `image` is refused. Empty: it is accepted.
std::string refusal(const std::string& image) {
  const Exact exact(image);
  const auto layout = tile_ir_layout(exact.view());
  if (layout.ok()) return "";
  EXPECT_EQ(layout.status().cuda_error(), 200);
  return layout.status().message();
}

const std::string kImage =
    build_tile_ir({{2, "a function"}, {4, ""}, {5, std::string(200, 't')}, {1, "add"}});

TEST(TileIrLayout, FindsSectionsAndEnd) {
  const Exact image(kImage + "what follows is not the image's");
  const auto layout = tile_ir_layout(image.view());
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_EQ(layout->bytes, kImage.size());
  EXPECT_EQ(layout->major, 13);
  EXPECT_EQ(layout->minor, 1);
  EXPECT_EQ(text_of(layout->section(TileIrSection::kFunctions)), "a function");
  EXPECT_EQ(text_of(layout->section(TileIrSection::kTypes)), std::string(200, 't'));
  EXPECT_EQ(text_of(layout->section(TileIrSection::kStrings)), "add");
  EXPECT_TRUE(layout->section(TileIrSection::kConstants).empty());
  EXPECT_TRUE(layout->section(TileIrSection::kDebug).empty());
  for (const TileIrSection which : {TileIrSection::kFunctions, TileIrSection::kTypes}) {
    EXPECT_EQ((layout->section(which).data() - image.view().data()) % 8, 0);
  }
  EXPECT_EQ(refusal(build_tile_ir({})), "");
  EXPECT_EQ(refusal(build_tile_ir({{2, "unaligned"}, {1, "x"}}, 0)), "");
}

TEST(TileIrLayout, ImageDetectionFindsTileIr) {
  const std::string followed = kImage + std::string(100, '\x7f');
  for (const auto& found : {image_at(followed.data(), followed.size()),
                            image_in(byte_view(followed.data(), followed.size()))}) {
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ(found->form, ImageForm::kTileIr);
    ASSERT_EQ(found->pieces.size(), 1u);
    EXPECT_EQ(found->pieces[0].size(), kImage.size());
  }
}

TEST(TileIrLayout, EveryTruncationIsRefused) {
  for (std::size_t length = 0; length < kImage.size(); ++length) {
    EXPECT_NE(refusal(kImage.substr(0, length)), "") << length;
  }
  EXPECT_EQ(refusal(kImage.substr(0, kImage.size() - 1)),
            "Tile IR image: the sections do not end at byte " + std::to_string(kImage.size() - 1));
}

TEST(TileIrLayout, FalseLengthsAreRefusedWithPlace) {
  std::string image = test::tile_ir_header();
  image += '\x02';
  std::string cut = image;
  test::put_varint(&cut, 1000);
  EXPECT_EQ(refusal(cut), "Tile IR image: section 2 is cut at byte 12");
  std::string over = image;
  test::put_varint(&over, kTileIrSectionBytesMax + 1);
  EXPECT_EQ(refusal(over),
            "Tile IR image: the length of section 2 is 268435457, over 268435456 at byte 13");
  std::string at_bound = image;
  test::put_varint(&at_bound, kTileIrSectionBytesMax);
  EXPECT_EQ(refusal(at_bound), "Tile IR image: section 2 is cut at byte 12");
  // Ten bytes. The last one does not fit into 64 bits.
  EXPECT_EQ(refusal(image + std::string(9, '\xff') + '\x7f'),
            "Tile IR image: the length of section 2 has too many bytes at byte 13");
  EXPECT_EQ(refusal(image + std::string(5000, '\x80')),
            "Tile IR image: the length of section 2 has too many bytes at byte 13");
}

TEST(TileIrLayout, InvalidSectionsAreRefused) {
  EXPECT_EQ(refusal(build_tile_ir({{8, "new"}})), "Tile IR image: unknown section 8 at byte 12");
  EXPECT_EQ(refusal(build_tile_ir({{0x7f, "new"}})),
            "Tile IR image: unknown section 127 at byte 12");
  EXPECT_EQ(refusal(build_tile_ir({{1, "x"}, {1, "x"}}, 0)),
            "Tile IR image: a second section 1 at byte 15");
  EXPECT_EQ(refusal(test::tile_ir_header() + '\x80'),
            "Tile IR image: an end that is aligned at byte 12");
  std::string old = kImage;
  old[8] = 12;
  EXPECT_EQ(refusal(old), "Tile IR image: a version that there is not at byte 8");
}

TEST(TileIrLayout, AlignmentsAreBoundedPowersOfTwo) {
  const auto aligned = [](std::uint64_t alignment) {
    std::string image = test::tile_ir_header() + std::string("\x82\x01", 2);
    test::put_varint(&image, alignment);
    return refusal(image);
  };
  for (const std::uint64_t alignment : {0, 3, 24}) {
    EXPECT_EQ(aligned(alignment),
              "Tile IR image: the alignment of section 2 is no power of two at byte 14");
  }
  EXPECT_EQ(aligned(kTileIrAlignmentMax),
            "Tile IR image: the padding of section 2 is cut at byte 17");
  EXPECT_EQ(aligned(2 * kTileIrAlignmentMax),
            "Tile IR image: the alignment of section 2 is 131072, over 65536 at byte 14");
}

TEST(TileIrLayout, SurvivesEveryChangedByte) {
  for (std::size_t at = 0; at < kImage.size(); ++at) {
    for (const char with : {'\0', '\xff', '\x7f', '\x80', '\x01'}) {
      std::string bad = kImage;
      bad[at] = with;
      const Exact exact(bad);
      const auto layout = tile_ir_layout(exact.view());
      if (!layout.ok()) continue;
      EXPECT_LE(layout->bytes, bad.size());
    }
  }
}

}  // namespace
}  // namespace gpurun::driver_abi
