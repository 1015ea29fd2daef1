// PTX inputs of our nvJitLink: each kind of input becomes the PTX that the emulated device would
// take. LTO-IR is set aside for compilation, and machine code is refused by name.
#include "client/nvjitlink/ptx_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/nvjitlink/real_library.h"
#include "driver_abi/cubin_with_ptx.h"
#include "driver_abi/linked_image.h"
#include "tests/support/images/object_builder.h"

namespace gpurun::nvjitlink {
namespace {

using test::build_archive;
using test::build_container;
using test::build_object;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint16_t kPtxEntry = 1, kElfEntry = 2, kNvvmEntry = 8;

ByteView view(const std::string& text) { return byte_view(text.data(), text.size()); }

const std::string& two_architectures() {
  static const std::string container =
      build_container({{.kind = kPtxEntry,
                        .arch = 75,
                        .content = ".version 9.0 // 75",
                        .packing = test::Packing::kZstd},
                       {.kind = kPtxEntry, .arch = 90, .content = ".version 9.0 // 90"},
                       {.kind = kElfEntry, .arch = 90, .content = "code"}});
  return container;
}

TEST(PtxInputs, StripsTrailingNulsFromText) {
  PtxInputs inputs(121);
  const std::string text(".version 9.0\0\0", 14);
  EXPECT_TRUE(inputs.add(kPtx, view(text), "a").ok());
  EXPECT_TRUE(inputs.add(kAny, view(text), "b").ok());
  EXPECT_THAT(inputs.texts(), ElementsAre(".version 9.0", ".version 9.0"));
}

TEST(PtxInputs, SelectsBestPtxOfFatbin) {
  for (const auto& [architecture, expected] :
       {std::pair{121U, ".version 9.0 // 90"}, std::pair{80U, ".version 9.0 // 75"}}) {
    PtxInputs inputs(architecture);
    EXPECT_TRUE(inputs.add(kFatbin, view(two_architectures()), "a").ok());
    EXPECT_THAT(inputs.texts(), ElementsAre(expected));
  }
}

TEST(PtxInputs, ReadsPtxOfLineInformationInMachineCode) {
  const std::string code =
      build_object({{".nv_debug_ptx_txt", std::string(".version 9.0\0.target sm_80\0", 27)}});
  PtxInputs inputs(80);
  EXPECT_TRUE(inputs.add(kCubin, view(code), "a").ok());
  EXPECT_THAT(inputs.texts(), ElementsAre(".version 9.0\n.target sm_80\n"));
  const std::string none = build_object({{".nv_debug_ptx_txt", "damaged"}});
  EXPECT_THAT(inputs.add(kCubin, view(none), "b").message(), HasSubstr("b: machine code"));
}

TEST(PtxInputs, ReadsPtxFromObjectsAndLibraries) {
  const std::string object = build_object({{"__nv_relfatbin", two_architectures()}});
  const std::string library = build_archive({object, object});
  PtxInputs inputs(80);
  EXPECT_TRUE(inputs.add(kObject, view(object), "a").ok());
  EXPECT_TRUE(inputs.add(kLibrary, view(library), "b").ok());
  EXPECT_TRUE(inputs.add(kAny, view(object), "c").ok());
  EXPECT_TRUE(inputs.add(kAny, view(library), "d").ok());
  EXPECT_THAT(inputs.texts(), testing::SizeIs(6));
}

TEST(PtxInputs, KeepsAllTextsOfLinkedImage) {
  const Bytes image = driver_abi::linked_image({"one", "two"});
  EXPECT_TRUE(is_linked_image(image));
  EXPECT_FALSE(is_linked_image(view(two_architectures())));
  for (const InputType type : {kCubin, kFatbin, kAny}) {
    PtxInputs inputs(121);
    EXPECT_TRUE(inputs.add(type, image, "a").ok());
    EXPECT_THAT(inputs.texts(), ElementsAre("one", "two"));
  }
}

// The output of a ptxas under gpurun.
TEST(PtxInputs, ReadsPtxThatMachineCodeCarries) {
  const Bytes image = driver_abi::linked_image({"one", "two"});
  std::string cubin =
      build_object({{driver_abi::kPtxSection,
                     std::string(reinterpret_cast<const char*>(image.data()), image.size())}});
  cubin[18] = '\xbe';  // EM_CUDA
  for (const InputType type : {kCubin, kAny}) {
    PtxInputs inputs(121);
    EXPECT_TRUE(inputs.add(type, view(cubin), "a").ok());
    EXPECT_THAT(inputs.texts(), ElementsAre("one", "two"));
  }
}

TEST(PtxInputs, SetsLtoIrAsideForCompilation) {
  const std::string fatbin = build_container({{.kind = kNvvmEntry, .arch = 90, .content = "ir"}});
  PtxInputs inputs(121);
  EXPECT_TRUE(inputs.add(kLtoIr, view("ir"), "a").ok());
  EXPECT_TRUE(inputs.add(kFatbin, view(fatbin), "b").ok());
  EXPECT_THAT(inputs.texts(), ElementsAre());
  ASSERT_THAT(inputs.compilable(), testing::SizeIs(2));
  EXPECT_EQ(inputs.compilable()[0].type, kLtoIr);
  EXPECT_EQ(inputs.compilable()[1].type, kFatbin);
  EXPECT_EQ(inputs.compilable()[1].name, "b");
}

TEST(PtxInputs, RefusesMachineCodeAndNamesInput) {
  const std::string fatbin = build_container({{.kind = kElfEntry, .arch = 90, .content = "code"}});
  std::string cubin(64, '\0');
  cubin.replace(0, 4, "\177ELF");
  cubin[18] = '\xbe';  // EM_CUDA
  for (const auto& [type, bytes] : {std::pair{kFatbin, fatbin}, std::pair{kCubin, cubin},
                                    std::pair{kAny, cubin}, std::pair{kCubin, std::string("x")}}) {
    PtxInputs inputs(121);
    const Status status = inputs.add(type, view(bytes), "their.code");
    EXPECT_EQ(status.code(), Code::kRefused);
    EXPECT_THAT(status.message(), HasSubstr("their.code"));
    EXPECT_THAT(inputs.texts(), ElementsAre());
  }
  PtxInputs inputs(121);
  EXPECT_THAT(inputs.add(kFatbin, view(fatbin), "f").message(), HasSubstr("elf 90"));
  EXPECT_FALSE(inputs.add(static_cast<InputType>(99), view("x"), "f").ok());
}

TEST(PtxInputs, ReadsArchitectureFromOptions) {
  EXPECT_EQ(architecture_of({}, 121), 121U);
  EXPECT_EQ(architecture_of({"-lto", "-arch=sm_90a"}, 121), 90U);
  EXPECT_EQ(architecture_of({"-arch=compute_75"}, 121), 75U);
  EXPECT_EQ(architecture_of({"-arch=sm_none"}, 121), 121U);
}

TEST(RealLibrary, SearchesNearCaller) {
  EXPECT_THAT(places_near("/v/site-packages/cuda/bindings/_internal/nvjitlink.so"),
              testing::IsSupersetOf({"/v/site-packages/nvidia/cu13/lib/libnvJitLink.so.13",
                                     "/v/site-packages/nvidia/nvjitlink/lib/libnvJitLink.so.12"}));
  EXPECT_THAT(places_near("name"), ElementsAre());
}

}  // namespace
}  // namespace gpurun::nvjitlink
