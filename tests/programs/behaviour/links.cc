// Driver API: links. Texts that need each other become one image, which is loaded by its address
// alone and runs. Logs and times are in the program's memory after each step. Errors return the
// same code and leave the same text.
#include <cuda.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "tests/support/cuda.h"

using cuda_check::name_of;

static const char kHead[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
// Calls `triple`, which another text defines.
static const char kCaller[] = R"(
.extern .func (.param .b32 result) triple(.param .b32 value);
.visible .entry caller(.param .u64 out, .param .u32 value)
{
  .reg .b64 %rd<2>; .reg .b32 %r<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r2, [value];
  { .param .b32 given; .param .b32 result;
    st.param.b32 [given], %r2;
    call.uni (result), triple, (given);
    ld.param.b32 %r1, [result]; }
  st.global.u32 [%rd1], %r1;
  ret;
})";
static const char kCallee[] = R"(
.visible .func (.param .b32 result) triple(.param .b32 value)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [value];
  mul.lo.s32 %r2, %r1, 3;
  st.param.b32 [result], %r2;
  ret;
})";

static std::string text(const char* body, std::size_t padding = 0) {
  return kHead + std::string(padding, '\n') + body;
}

// The program's memory for one link, as long as the link lives.
struct Link {
  CUlinkState state = nullptr;
  char info[512], error[512];
  CUjit_option options[6] = {CU_JIT_WALL_TIME,
                             CU_JIT_INFO_LOG_BUFFER,
                             CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
                             CU_JIT_ERROR_LOG_BUFFER,
                             CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                             CU_JIT_LOG_VERBOSE};
  void* values[6] = {nullptr,
                     info,
                     reinterpret_cast<void*>(sizeof info),
                     error,
                     reinterpret_cast<void*>(sizeof error),
                     reinterpret_cast<void*>(1)};

  Link() {
    std::memset(info, 'i', sizeof info);
    std::memset(error, 'e', sizeof error);
    const float before = NAN;
    std::memcpy(&values[0], &before, sizeof before);
    MUST(cuLinkCreate(6, options, values, &state));
    EXPECT(info[0] == 'i' && error[0] == 'e');
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { MUST(cuLinkDestroy(state)); }

  CUresult add(const std::string& data, const char* name = nullptr,
               CUjitInputType type = CU_JIT_INPUT_PTX) {
    return cuLinkAddData(state, type, const_cast<char*>(data.c_str()), data.size() + 1, name, 0,
                         nullptr, nullptr);
  }
  float milliseconds() const {
    float time;
    std::memcpy(&time, &values[0], sizeof time);
    return time;
  }
  void show(const char* what, CUresult result) const {
    std::printf("%s: %s", what, name_of(result));
    const auto filled = reinterpret_cast<std::size_t>(values[4]);
    if (filled < sizeof error) {
      EXPECT(std::strlen(error) == filled);
      std::printf(", error log of %zu: %s", filled, error);
    }
    std::printf("\n");
  }
};

static unsigned run(CUmodule module, unsigned value) {
  CUfunction caller;
  MUST(cuModuleGetFunction(&caller, module, "caller"));
  CUdeviceptr out;
  MUST(cuMemAlloc(&out, 4));
  void* arguments[] = {&out, &value};
  MUST(cuLaunchKernel(caller, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  unsigned result = 0;
  MUST(cuMemcpyDtoH(&result, out, 4));
  MUST(cuMemFree(out));
  return result;
}

// Padding makes the inputs, and so the image, longer than one message.
static void link_and_run(std::size_t padding) {
  CUmodule module;
  {
    Link link;
    MUST(link.add(text(kCaller, padding), "caller"));
    MUST(link.add(text(kCallee, padding)));
    void *image = nullptr, *again = nullptr;
    std::size_t bytes = 0;
    MUST(cuLinkComplete(link.state, &image, &bytes));
    EXPECT(image != nullptr && bytes > 2 * padding);
    EXPECT(link.milliseconds() > 0 && link.milliseconds() < 1e6F);
    EXPECT(std::strlen(link.info) == reinterpret_cast<std::size_t>(link.values[2]));
    link.show("linked", CUDA_SUCCESS);
    MUST(cuLinkComplete(link.state, &again, nullptr));
    EXPECT(again == image);
    std::printf("after completion: %s\n", name_of(link.add(text(kCallee))));
    MUST(cuModuleLoadData(&module, image));
    CUlibrary library;
    MUST(cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel kernel;
    MUST(cuLibraryGetKernel(&kernel, library, "caller"));
    MUST(cuLibraryUnload(library));

    // The output of a link can be linked again.
    Link second;
    MUST(cuLinkAddData(second.state, CU_JIT_INPUT_CUBIN, image, bytes, "first", 0, nullptr,
                       nullptr));
    void* relinked = nullptr;
    MUST(cuLinkComplete(second.state, &relinked, &bytes));
    CUmodule other;
    MUST(cuModuleLoadData(&other, relinked));
    EXPECT(run(other, 5) == 15);
    MUST(cuModuleUnload(other));
  }
  // The module outlives the link.
  EXPECT(run(module, 14) == 42);
  MUST(cuModuleUnload(module));
}

static void link_files() {
  std::string folder = std::filesystem::temp_directory_path() / "gpurun-links-XXXXXX";
  EXPECT(mkdtemp(folder.data()) != nullptr);
  const std::string file = folder + "/callee.ptx", missing = folder + "/none",
                    empty = folder + "/e";
  for (const std::string& name : {file, empty}) {
    std::FILE* out = std::fopen(name.c_str(), "w");
    EXPECT(out != nullptr);
    if (name == file) EXPECT(std::fputs(text(kCallee, 100'000).c_str(), out) >= 0);
    EXPECT(std::fclose(out) == 0);
  }
  Link link;
  const auto add = [&link](const std::string& name, CUjitInputType type) {
    return name_of(cuLinkAddFile(link.state, type, name.c_str(), 0, nullptr, nullptr));
  };
  std::printf("missing file: %s\n", add(missing, CU_JIT_INPUT_PTX));
  std::printf("a folder: %s\n", add(folder, CU_JIT_INPUT_PTX));
  std::printf("an empty file: %s\n", add(empty, CU_JIT_INPUT_PTX));
  std::printf("as an archive: %s\n", add(file, CU_JIT_INPUT_LIBRARY));
  std::printf("file: %s\n", add(file, CU_JIT_INPUT_PTX));
  MUST(link.add(text(kCaller)));
  void* image = nullptr;
  MUST(cuLinkComplete(link.state, &image, nullptr));
  CUmodule module;
  MUST(cuModuleLoadData(&module, image));
  EXPECT(run(module, 7) == 21);
  MUST(cuModuleUnload(module));
  for (const std::string& name : {file, empty}) EXPECT(unlink(name.c_str()) == 0);
  EXPECT(rmdir(folder.c_str()) == 0);
}

static void show_failures() {
  Link link;
  const CUresult broken = link.add(".version 8.0\nnonsense {", "broken.ptx");
  EXPECT(std::strstr(link.error, "broken.ptx") != nullptr);
  link.show("broken text", broken);
  const std::size_t before = std::strlen(link.error);
  const CUresult later = link.add(".version 99.0\n.target sm_80\n", "later.ptx");
  EXPECT(std::strlen(link.error) > before);  // After the earlier text.
  link.show("later text", later);
  // The link continues with a correct text, and a second definition is an error.
  MUST(link.add(text(kCallee), "one"));
  MUST(link.add(text(kCallee), "other"));
  void* image = &link;
  const CUresult twice = cuLinkComplete(link.state, &image, nullptr);
  EXPECT(twice != CUDA_SUCCESS && image == &link);
  EXPECT(std::strstr(link.error, "triple") != nullptr);
  link.show("defined twice", twice);

  Link nothing;
  nothing.show("nothing", cuLinkComplete(nothing.state, &image, nullptr));
}

static void show_wrong_calls(CUcontext context) {
  Link link;
  char data[] = "x";
  std::printf("type: %s\n", name_of(link.add("x", nullptr, static_cast<CUjitInputType>(99))));
  std::printf("no data: %s\n", name_of(cuLinkAddData(link.state, CU_JIT_INPUT_PTX, nullptr, 1,
                                                     nullptr, 0, nullptr, nullptr)));
  std::printf("no bytes: %s\n", name_of(cuLinkAddData(link.state, CU_JIT_INPUT_PTX, data, 0,
                                                      nullptr, 0, nullptr, nullptr)));
  CUjit_option option = CU_JIT_WALL_TIME;
  void* value = nullptr;
  std::printf("an option of links: %s\n", name_of(cuLinkAddData(link.state, CU_JIT_INPUT_PTX, data,
                                                                2, nullptr, 1, &option, &value)));
  std::printf("no output: %s\n", name_of(cuLinkComplete(link.state, nullptr, nullptr)));
  void* image = nullptr;
  CUlinkState ended;
  MUST(cuLinkCreate(0, nullptr, nullptr, &ended));
  MUST(cuLinkDestroy(ended));
  for (CUlinkState state : {ended, static_cast<CUlinkState>(nullptr)}) {
    std::printf(
        "no state: %s %s %s %s\n",
        name_of(cuLinkAddData(state, CU_JIT_INPUT_PTX, data, 2, nullptr, 0, nullptr, nullptr)),
        name_of(cuLinkAddFile(state, CU_JIT_INPUT_PTX, "x", 0, nullptr, nullptr)),
        name_of(cuLinkComplete(state, &image, nullptr)), name_of(cuLinkDestroy(state)));
  }
  // A link that remains when its context ends, and one that needs no current context.
  CUcontext other;
  CUdevice device;
  MUST(cuCtxGetDevice(&device));
  MUST(cuCtxCreate(&other, nullptr, 0, device));
  CUlinkState left;
  MUST(cuLinkCreate(0, nullptr, nullptr, &left));
  MUST(cuCtxDestroy(other));
  std::printf("context ended: %s %s\n", name_of(cuLinkComplete(left, &image, nullptr)),
              name_of(cuLinkDestroy(left)));
  MUST(cuCtxSetCurrent(nullptr));
  std::printf("no context: %s %s\n", name_of(cuLinkCreate(0, nullptr, nullptr, &left)),
              name_of(link.add(text(kCallee))));
  MUST(cuCtxSetCurrent(context));
}

int main() {
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context;
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  link_and_run(0);
  link_and_run(300'000);
  link_files();
  show_failures();
  show_wrong_calls(context);
  MUST(cuCtxDestroy(context));
  std::printf("PASSED\n");
  return 0;
}
