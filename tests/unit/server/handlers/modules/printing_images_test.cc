// Printing images: an image counts as printing unless all its code can be read and does not name
// the functions behind printf and assert.
#include "server/handlers/modules/printing_images.h"

#include <gtest/gtest.h>

#include <string>

#include "driver_abi/fatbin.h"
#include "tests/support/images/fatbin_builder.h"

namespace gpurun::server {
namespace {

using driver_abi::Image;
using driver_abi::ImageForm;
using test::build_container;
using test::Packing;

const std::string kQuiet = ".version 7.0\n.target sm_75\n" + std::string(3000, 'x') + '\0';
const std::string kPrints = kQuiet + ".extern .func (.param .b32 r) vprintf\n";
const std::string kAsserts = kQuiet + ".extern .func __assertfail\n";
constexpr std::uint16_t kElf = 2, kNvvm = 8, kUnknown = 99;

ByteView view(const std::string& text) { return byte_view(text.data(), text.size()); }

bool prints(ImageForm form, const std::string& piece) {
  return may_print(Image{form, 0, {view(piece)}});
}
bool prints(const test::EntrySpec& entry) {
  return prints(ImageForm::kContainer, build_container({{.content = kQuiet}, entry}));
}

TEST(PrintingImages, BareImagePrintsIfItNamesFunction) {
  for (const ImageForm form : {ImageForm::kPtx, ImageForm::kElf}) {
    EXPECT_FALSE(prints(form, kQuiet));
    EXPECT_TRUE(prints(form, kPrints));
    EXPECT_TRUE(prints(form, kAsserts));
  }
}

TEST(PrintingImages, ContainerPrintsIfAnyEntryDoes) {
  for (const Packing packing : {Packing::kPlain, Packing::kLz4, Packing::kZstd}) {
    EXPECT_FALSE(prints({.content = kQuiet, .packing = packing}));
    EXPECT_TRUE(prints({.content = kPrints, .packing = packing}));
    EXPECT_TRUE(prints({.kind = kElf, .content = kAsserts, .packing = packing}));
  }
}

TEST(PrintingImages, WrapperPrintsIfAnyPieceDoes) {
  const std::string quiet = build_container({{.content = kQuiet}});
  const std::string loud = build_container({{.content = kPrints}});
  EXPECT_FALSE(may_print(Image{ImageForm::kWrapper, 2, {view(quiet), view(quiet)}}));
  EXPECT_TRUE(may_print(Image{ImageForm::kWrapper, 2, {view(quiet), view(loud)}}));
}

TEST(PrintingImages, UnreadableImageCountsAsPrinting) {
  EXPECT_TRUE(prints({.kind = kNvvm, .content = kQuiet}));
  EXPECT_TRUE(prints({.kind = kUnknown, .content = kQuiet}));
  EXPECT_TRUE(
      prints({.kind = kElf, .flags = 0x11 | driver_abi::kFatbinFlagLto, .content = kQuiet}));
  std::string damaged = build_container({{.content = kQuiet, .packing = Packing::kZstd}});
  damaged[16 + 64] ^= 1;  // The first byte of the packed text.
  EXPECT_TRUE(prints(ImageForm::kContainer, damaged));
  EXPECT_TRUE(prints(ImageForm::kContainer, "no container"));
  EXPECT_TRUE(prints(ImageForm::kTileIr, kQuiet));
  EXPECT_TRUE(may_print(Image{ImageForm::kWrapper, 1, {}}));
}

TEST(PrintingImages, LargeImageCountsAsPrinting) {
  const std::string large(std::size_t{5} << 20, ' ');
  EXPECT_TRUE(prints(ImageForm::kPtx, large));
  EXPECT_TRUE(prints({.content = large, .packing = Packing::kZstd}));
}

}  // namespace
}  // namespace gpurun::server
