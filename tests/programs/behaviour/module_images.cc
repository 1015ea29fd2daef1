// Driver API: module images. The same code as PTX text and as a fat binary, from memory and from a
// file, variables of a module, and the errors of a missing name and a broken image.
#include <cuda.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/cuda.h"

using cuda_check::name_of;

static std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

static void use(CUmodule module, unsigned start) {
  CUfunction fill;
  MUST(cuModuleGetFunction(&fill, module, "fill"));
  std::vector<unsigned> host(1000);
  unsigned count = 1000;
  CUdeviceptr out;
  MUST(cuMemAlloc(&out, 4000));
  void* arguments[] = {&out, &count, &start};
  MUST(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
  MUST(cuMemcpyDtoH(host.data(), out, 4000));
  for (unsigned i = 0; i < count; ++i) EXPECT(host[i] == start + i);
  MUST(cuMemFree(out));
  CUdeviceptr visits;
  std::size_t bytes = 0;
  MUST(cuModuleGetGlobal(&visits, &bytes, module, "visits"));
  unsigned long long seen = 0;
  EXPECT(bytes == sizeof seen);
  MUST(cuMemcpyDtoH(&seen, visits, sizeof seen));
  EXPECT(seen == 4);
  CUfunction missing;
  std::printf("missing name: %s\n", name_of(cuModuleGetFunction(&missing, module, "no_such")));
  int threads = 0;
  MUST(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill));
  EXPECT(threads >= 256);
  std::size_t offset = 0, size = 0;
  MUST(cuFuncGetParamInfo(fill, 2, &offset, &size));
  EXPECT(offset == 12 && size == 4);
}

// A library needs no context. It may be loaded, and its kernels queried, before one exists.
static void load_before_any_context(const std::string& fat, CUdevice device) {
  CUlibrary library;
  MUST(cuLibraryLoadData(&library, fat.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel;
  MUST(cuLibraryGetKernel(&kernel, library, "fill"));
  std::size_t offset = 0, bytes = 0;
  std::printf("parameters without a context: %s\n",
              name_of(cuKernelGetParamInfo(kernel, 0, &offset, &bytes)));
  int active = 1;
  unsigned flags = 0;
  MUST(cuDevicePrimaryCtxGetState(device, &flags, &active));
  EXPECT(active == 0);
  CUcontext context;
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  MUST(cuKernelGetParamInfo(kernel, 2, &offset, &bytes));
  EXPECT(offset == 12 && bytes == 4);
  CUdeviceptr out;
  MUST(cuMemAlloc(&out, 64));
  unsigned count = 16, start = 7, last = 0;
  void* arguments[] = {&out, &count, &start};
  MUST(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 16, 1, 1, 0, nullptr,
                      arguments, nullptr));
  MUST(cuMemcpyDtoH(&last, out + 60, 4));
  EXPECT(last == 22);
  MUST(cuLibraryUnload(library));
  MUST(cuCtxDestroy(context));
}

// The program's error log describes an image's fault, whichever part has refused it.
struct ErrorLog {
  char text[512];
  CUjit_option options[4] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                             CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  char info[64];
  void* values[4];

  ErrorLog() {
    std::memset(text, 'x', sizeof text);
    std::memset(info, 'x', sizeof info);
    values[0] = text, values[1] = reinterpret_cast<void*>(sizeof text);
    values[2] = info, values[3] = reinterpret_cast<void*>(sizeof info);
  }
  void show(const char* what, CUresult result) const {
    const auto length = reinterpret_cast<std::size_t>(values[1]);
    EXPECT(result != CUDA_SUCCESS && length > 0 && length < sizeof text && text[length] == '\0');
    std::printf("%s: %s, log of %zu: %s\n", what, name_of(result), length, text);
  }
  void expect_no_info() const { EXPECT(values[3] == nullptr && info[0] == '\0'); }
};

static void show_logs(const std::string& fat) {
  const std::string none("\x01\x02\x03\x04\x05\x06\x07\x08", 9), text = ".version 1.0\nnonsense;\n";
  std::string cut = fat.substr(0, 64), elf("\x7f"
                                           "ELF",
                                           4);
  cut[8] = '\xff', cut[15] = '\xff';  // Claims to be longer than any image is.
  elf.resize(128, '\xff');
  for (const std::string& image : {none, text, cut, elf}) {
    CUmodule module;
    CUlibrary library;
    CUlinkState link;
    ErrorLog of_module, of_library, of_link;
    of_module.show("module", cuModuleLoadDataEx(&module, image.data(), 4, of_module.options,
                                                of_module.values));
    of_module.expect_no_info();
    of_library.show("library", cuLibraryLoadData(&library, image.data(), of_library.options,
                                                 of_library.values, 4, nullptr, nullptr, 0));
    of_library.expect_no_info();
    MUST(cuLinkCreate(4, of_link.options, of_link.values, &link));
    const bool is_text = image == text;
    const CUjitInputType type = is_text ? CU_JIT_INPUT_PTX : CU_JIT_INPUT_FATBINARY;
    of_link.show("link",
                 cuLinkAddData(link, type, const_cast<char*>(image.data()),
                               image.size() + (is_text ? 1 : 0), "input", 0, nullptr, nullptr));
    MUST(cuLinkDestroy(link));
  }
}

int main(int argc, char** argv) {
  EXPECT(argc == 3);  // A fat binary, PTX text.
  const std::string fat = read(argv[1]), ptx = read(argv[2]);
  EXPECT(!fat.empty() && !ptx.empty());
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  load_before_any_context(fat, device);
  CUcontext context;
  MUST(cuCtxCreate(&context, nullptr, 0, device));

  CUmodule module;
  for (unsigned round = 0; round < 3; ++round) {  // Each load has its own variables.
    MUST(cuModuleLoadData(&module, fat.data()));
    use(module, 10 * round);
    MUST(cuModuleUnload(module));
  }
  MUST(cuModuleLoadData(&module, ptx.c_str()));
  use(module, 7);
  MUST(cuModuleUnload(module));
  MUST(cuModuleLoadFatBinary(&module, fat.data()));
  use(module, 8);
  MUST(cuModuleUnload(module));
  MUST(cuModuleLoad(&module, argv[2]));
  use(module, 9);

  CUlibrary library;
  MUST(cuLibraryLoadData(&library, fat.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned kernels = 0;
  MUST(cuLibraryGetKernelCount(&kernels, library));
  std::printf("kernels: %u\n", kernels);
  CUkernel kernel;
  MUST(cuLibraryGetKernel(&kernel, library, "fill"));
  CUdeviceptr out;
  MUST(cuMemAlloc(&out, 64));
  unsigned count = 16, start = 5, host[16];
  void* arguments[] = {&out, &count, &start};
  MUST(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 16, 1, 1, 0, nullptr,
                      arguments, nullptr));
  MUST(cuMemcpyDtoH(host, out, 64));
  EXPECT(host[15] == 20);
  MUST(cuLibraryUnload(library));

  CUmodule none;
  std::printf("broken text: %s\n", name_of(cuModuleLoadData(&none, ".version 7.0\nnonsense {")));
  std::printf("not a file: %s\n", name_of(cuModuleLoad(&none, "no such file")));
  std::printf("null image: %s\n", name_of(cuModuleLoadData(&none, nullptr)));
  show_logs(fat);
  MUST(cuCtxDestroy(context));
  std::printf("PASSED\n");
  return 0;
}
