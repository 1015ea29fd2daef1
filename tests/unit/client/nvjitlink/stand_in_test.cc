// nvJitLink stand-in on an emulated device: programs get NVIDIA's answers, but PTX in place of
// machine code, or the reason why that is missing. A library of the test plays NVIDIA's.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "client/nvjitlink/abi.h"
#include "driver_abi/linked_image.h"
#include "tests/support/images/fatbin_builder.h"

namespace gpurun::nvjitlink {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class NvJitLinkStandIn : public testing::Test {
 protected:
  void SetUp() override {
    setenv("GPURUN_NVJITLINK", FAKE_NVJITLINK, 1);
    library_ = dlopen(STAND_IN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }

  template <typename... Parameters>
  int call(const std::string& name, Parameters... parameters) {
    auto* function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library_, name.c_str()));
    if (function == nullptr) {
      ADD_FAILURE() << "no " << name;
      return -1;
    }
    return function(parameters...);
  }

  void* create(std::vector<const char*> options) {
    void* handle = nullptr;
    EXPECT_EQ(call("nvJitLinkCreate", &handle, static_cast<std::uint32_t>(options.size()),
                   options.data()),
              kSuccess);
    return handle;
  }

  int add(void* link, InputType type, const std::string& bytes) {
    return call("nvJitLinkAddData", link, static_cast<int>(type),
                static_cast<const void*>(bytes.data()), bytes.size(), "their.input");
  }

  std::string cubin(void* link) {
    std::size_t bytes = 0;
    EXPECT_EQ(call("nvJitLinkGetLinkedCubinSize", link, &bytes), kSuccess);
    std::string image(bytes, '\0');
    EXPECT_EQ(call("nvJitLinkGetLinkedCubin", link, static_cast<void*>(image.data())), kSuccess);
    return image;
  }

  std::string error_log(void* link) {
    std::size_t bytes = 0;
    EXPECT_EQ(call("nvJitLinkGetErrorLogSize", link, &bytes), kSuccess);
    std::string log(bytes, '\0');
    EXPECT_EQ(call("nvJitLinkGetErrorLog", link, log.data()), kSuccess);
    return log.c_str();
  }

  static std::vector<std::string> texts_of(const std::string& image) {
    const auto entries = driver_abi::read_fatbin(byte_view(image.data(), image.size()));
    std::vector<std::string> texts;
    if (!entries.ok()) return {"no container"};
    for (const auto& entry : *entries) texts.push_back(*driver_abi::ptx_text(entry));
    return texts;
  }

  void destroy(void* link) {
    EXPECT_EQ(call("nvJitLinkDestroy", &link), kSuccess);
    EXPECT_EQ(link, nullptr);
    void* fake = dlopen(FAKE_NVJITLINK, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(fake, nullptr);
    EXPECT_EQ(*static_cast<int*>(dlsym(fake, "live_links")), 0);
  }

  void* library_ = nullptr;
};

TEST_F(NvJitLinkStandIn, KeepsPtxInputsAsPtx) {
  void* link = create({"-arch=sm_121"});
  EXPECT_EQ(add(link, kPtx, std::string(".version 9.0 // a\0", 18)), kSuccess);
  EXPECT_EQ(add(link, kPtx, ".version 9.0 // b"), kSuccess);
  EXPECT_EQ(call("nvJitLinkComplete", link), kSuccess);
  const std::string image = cubin(link);
  EXPECT_THAT(texts_of(image), ElementsAre(".version 9.0 // a", ".version 9.0 // b"));
  destroy(link);

  // The same through another link, as a program's cubin.
  void* again = create({"-arch=sm_121"});
  EXPECT_EQ(add(again, kCubin, image), kSuccess);
  EXPECT_EQ(call("nvJitLinkComplete", again), kSuccess);
  EXPECT_THAT(texts_of(cubin(again)), testing::SizeIs(2));
  destroy(again);
}

TEST_F(NvJitLinkStandIn, CompilesLtoIrWithNvidiaLibrary) {
  void* link = create({"-arch=sm_121", "-lto"});
  EXPECT_EQ(add(link, kLtoIr, "ir"), kSuccess);
  EXPECT_EQ(add(link, kPtx, ".version 9.0"), kSuccess);
  EXPECT_EQ(call("nvJitLinkComplete", link), kSuccess);
  EXPECT_THAT(texts_of(cubin(link)),
              ElementsAre("// compiled -arch=sm_121 -lto -ptx 3:ir", ".version 9.0"));
  destroy(link);
}

// A program that asks for PTX gets NVIDIA's.
TEST_F(NvJitLinkStandIn, ReturnsNvidiaPtxWhenRequested) {
  void* link = create({"-arch=sm_121", "-lto", "-ptx"});
  EXPECT_EQ(add(link, kLtoIr, "ir"), kSuccess);
  EXPECT_EQ(call("nvJitLinkComplete", link), kSuccess);
  std::size_t bytes = 0;
  EXPECT_EQ(call("nvJitLinkGetLinkedPtxSize", link, &bytes), kSuccess);
  std::string text(bytes, '\0');
  EXPECT_EQ(call("nvJitLinkGetLinkedPtx", link, text.data()), kSuccess);
  EXPECT_THAT(text, HasSubstr("-lto -ptx 3:ir"));
  EXPECT_EQ(cubin(link), "SASS");
  destroy(link);
}

TEST_F(NvJitLinkStandIn, RejectsMachineCodeWithReason) {
  void* link = create({"-arch=sm_121"});
  EXPECT_EQ(add(link, kFatbin, test::build_container({{.kind = 2, .arch = 90, .content = "sass"}})),
            kSuccess);
  EXPECT_EQ(call("nvJitLinkComplete", link), kFinalize);
  EXPECT_THAT(error_log(link), HasSubstr("their.input: no PTX, only: elf 90"));
  destroy(link);
}

TEST_F(NvJitLinkStandIn, ForwardsNvidiaErrorsAndLogs) {
  void* none = nullptr;
  EXPECT_EQ(call("nvJitLinkCreate", &none, std::uint32_t{0}, static_cast<const char**>(nullptr)),
            2);
  void* link = create({"-arch=sm_121"});
  EXPECT_EQ(add(link, kPtx, "bad"), kInvalidInput);
  EXPECT_EQ(error_log(link), "NVIDIA's words");
  destroy(link);
  unsigned major = 0, minor = 0;
  EXPECT_EQ(call("nvJitLinkVersion", &major, &minor), kSuccess);
  EXPECT_EQ(major * 100 + minor, 1399U);
  // The fake library lacks this function.
  std::size_t bytes = 0;
  EXPECT_EQ(call("nvJitLinkGetLinkedLTOIRSize", static_cast<void*>(nullptr), &bytes), kNullInput);
}

TEST_F(NvJitLinkStandIn, RejectsNullArguments) {
  EXPECT_EQ(call("nvJitLinkCreate", static_cast<void**>(nullptr), std::uint32_t{0},
                 static_cast<const char**>(nullptr)),
            kNullInput);
  void* none = nullptr;
  EXPECT_EQ(add(none, kPtx, "x"), kNullInput);
  EXPECT_EQ(call("nvJitLinkComplete", none), kNullInput);
  std::size_t bytes = 0;
  for (const char* name : {"nvJitLinkGetLinkedCubinSize", "nvJitLinkGetLinkedPtxSize",
                           "nvJitLinkGetErrorLogSize", "nvJitLinkGetInfoLogSize"}) {
    EXPECT_EQ(call(name, none, &bytes), kNullInput) << name;
  }
  EXPECT_EQ(call("nvJitLinkDestroy", &none), kInvalidInput);
}

// In a separate process, because a library stays loaded once it was found. Without NVIDIA's library
// PTX still links, and LTO-IR reports what is missing.
TEST_F(NvJitLinkStandIn, LinksPtxWithoutNvidiaLibrary) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto all_right = [this] {
    setenv("GPURUN_NVJITLINK", "/nonexistent/library.so", 1);
    unsigned major = 0, minor = 9;
    EXPECT_EQ(call("nvJitLinkVersion", &major, &minor), kInternal);
    void* link = create({"-arch=sm_121"});
    EXPECT_EQ(add(link, kPtx, ".version 9.0 // a"), kSuccess);
    EXPECT_EQ(call("nvJitLinkComplete", link), kSuccess);
    EXPECT_THAT(texts_of(cubin(link)), ElementsAre(".version 9.0 // a"));
    EXPECT_EQ(error_log(link), "");
    EXPECT_EQ(call("nvJitLinkDestroy", &link), kSuccess);
    link = create({"-arch=sm_121", "-lto"});
    EXPECT_EQ(add(link, kLtoIr, "ir"), kSuccess);
    EXPECT_EQ(call("nvJitLinkComplete", link), kInternal);
    EXPECT_THAT(error_log(link), HasSubstr("needs NVIDIA's nvJitLink"));
    EXPECT_EQ(call("nvJitLinkDestroy", &link), kSuccess);
    std::exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(all_right(), testing::ExitedWithCode(0), "");
}

// NVIDIA's library reads the NUL of a text even if the length excludes it. A copy may lack the NUL.
TEST_F(NvJitLinkStandIn, PassesCallersBufferToNvidiaLibrary) {
  void* link = create({"-arch=sm_121"});
  const std::string text = ".version 9.0";
  EXPECT_EQ(add(link, kPtx, text), kSuccess);
  void* fake = dlopen(FAKE_NVJITLINK, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(fake, nullptr);
  EXPECT_EQ(*static_cast<const void**>(dlsym(fake, "last_data")), text.data());
  destroy(link);
}

// Programs that were compiled with a release's header use that release's names.
TEST_F(NvJitLinkStandIn, ExportsNamesOfEveryRelease) {
  for (const char* function :
       {"Create", "Destroy", "AddData", "AddFile", "Complete", "GetLinkedCubinSize",
        "GetLinkedCubin", "GetLinkedPtxSize", "GetLinkedPtx", "GetLinkedLTOIRSize",
        "GetLinkedLTOIR", "GetErrorLogSize", "GetErrorLog", "GetInfoLogSize", "GetInfoLog"}) {
    for (const char* release : {"12_0", "12_9", "13_0", "13_5", "13_9"}) {
      const std::string plain = std::string("nvJitLink") + function;
      EXPECT_EQ(dlsym(library_, ("__" + plain + "_" + release).c_str()),
                dlsym(library_, plain.c_str()))
          << plain << release;
    }
  }
}

}  // namespace
}  // namespace gpurun::nvjitlink
