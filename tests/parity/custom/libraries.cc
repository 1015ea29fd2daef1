// Libraries: like modules, but without a context, and sent late if the program preserves the image.
#include <fstream>

#include "tests/parity/custom/kernels.h"

namespace gpurun::parity {
namespace {

constexpr char kFromTable[] = "answered in the client from what the load has told";

Seen expected_load(Trial& t, const std::string& image) {
  CUlibrary loaded = nullptr;
  return t.direct(FN(cuLibraryLoadData), &loaded, image.c_str(), nullptr, nullptr, 0u, nullptr,
                  nullptr, 0u);
}

void expect_library(Trial& t, Both<CUlibrary> library, const Seen& by_client) {
  t.bind(library, by_client, "cuLibraryLoadData", "library");
  t.at_end([&t, library] { (void)t.call_client(FN(cuLibraryUnload), library); });
  Both<CUkernel> kernel;
  t.same(FN(cuLibraryGetKernel), out(kernel), library, "scale");
}

void add_loads(TrialTable& table) {
  table.translated(
      "cuLibraryLoadData", "without the option that promises to keep the image", [](Trial& t) {
        const std::string image = t.draw(0, 2) == 0 ? kPtx : new_image(t);
        CUjit_option jit = CU_JIT_MAX_REGISTERS;
        void* value = reinterpret_cast<void*>(t.draw(16, 255));
        const auto jits = t.one_of({0u, 1u});
        CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
        void* preserved = reinterpret_cast<void*>(1);
        const auto options = t.one_of({0u, 1u});
        Both<CUlibrary> library;
        const Seen seen = t.client(FN(cuLibraryLoadData), &library.client, image.c_str(),
                                   jits == 0 ? nullptr : &jit, jits == 0 ? nullptr : &value, jits,
                                   options == 0 ? nullptr : &option,
                                   options == 0 ? nullptr : &preserved, options);
        t.expect_same(seen, t.direct(FN(cuLibraryLoadData), &library.driver, image.c_str(),
                                     jits == 0 ? nullptr : &jit, jits == 0 ? nullptr : &value, jits,
                                     nullptr, nullptr, 0u));
        expect_library(t, library, seen);
      });
  table.translated(
      "cuLibraryLoadFromFile", "cuLibraryLoadData with the file's bytes", [](Trial& t) {
        const std::string image = t.draw(0, 2) == 0 ? kPtx : new_image(t);
        const std::string file = World::get().folder() / "library.ptx";
        std::ofstream(file) << image;
        Both<CUlibrary> library;
        const Seen seen = t.client(FN(cuLibraryLoadFromFile), &library.client, file.c_str(),
                                   nullptr, nullptr, 0u, nullptr, nullptr, 0u);
        t.expect_same(seen, expected_load(t, image));
        expect_library(t, library, seen);
      });
  table.add("cuLibraryUnload", [](Trial& t) {
    Both<CUlibrary> library, directly;
    t.bind(library,
           t.client(FN(cuLibraryLoadData), &library.client, kPtx, nullptr, nullptr, 0u, nullptr,
                    nullptr, 0u),
           "cuLibraryLoadData", "library");
    EXPECT_EQ(t.call_direct(FN(cuLibraryLoadData), &directly.driver, kPtx, nullptr, nullptr, 0u,
                            nullptr, nullptr, 0u),
              CUDA_SUCCESS);
    t.expect_same(
        t.client(FN(cuLibraryUnload), library),
        Trial::renamed(t.direct(FN(cuLibraryUnload), directly), directly.driver, library.driver));
  });
}

void add_kernels(TrialTable& table) {
  table.add("cuLibraryGetKernel", [](Trial& t) {
    const Both<CUlibrary> library = new_library(t);
    Both<CUkernel> kernel;
    t.same(FN(cuLibraryGetKernel), out(kernel), library, "add");
    t.same(FN(cuKernelSetCacheConfig), kernel, CU_FUNC_CACHE_PREFER_L1, 0);
  });
  table.translated("cuLibraryGetKernelCount", kFromTable, [](Trial& t) {
    const Both<CUlibrary> library = new_library(t);
    Both<unsigned> count;
    const int expected = t.direct(FN(cuLibraryGetKernelCount), &count.driver, library).result;
    t.expect_local(t.client(FN(cuLibraryGetKernelCount), &count.client, library), expected);
    t.expect_equal(count);
  });
  table.translated(
      "cuLibraryEnumerateKernels", "each by its name, in the image's order", [](Trial& t) {
        const Both<CUlibrary> library = new_library(t);
        CUkernel listed[3] = {}, asked[3] = {};
        const auto room = static_cast<unsigned>(t.draw(1, 3));
        const Seen seen = t.client(FN(cuLibraryEnumerateKernels), listed, room, library);
        const Seen expected = t.direct_call([&] {
          const char* const names[] = {"add", "scale", "nothing"};
          for (unsigned i = 0; i < room; ++i) {
            (void)t.call_direct(FN(cuLibraryGetKernel), &asked[i], library, names[i]);
          }
          return CUDA_SUCCESS;
        });
        t.expect_same(seen, expected);
        for (unsigned i = 0; i < room; ++i) {
          t.same(FN(cuKernelSetCacheConfig), Both<CUkernel>{listed[i], asked[i]},
                 CU_FUNC_CACHE_PREFER_SHARED, 0);
        }
      });
  table.add("cuLibraryGetGlobal", [](Trial& t) {
    const Both<CUlibrary> library = new_library(t);
    Both<CUdeviceptr> address;
    Both<std::size_t> bytes;
    t.same(FN(cuLibraryGetGlobal), out(address), out(bytes), library, "table");
    t.expect_equal(address);
    t.expect_equal(bytes);
  });
  table.translated("cuLibraryGetManaged", "refused with GPURUN_HOST_MEMORY=copy", [](Trial& t) {
    const Both<CUlibrary> library = new_library(t);
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    t.expect_local(t.client(FN(cuLibraryGetManaged), &address, &bytes, library, "managed"),
                   CUDA_ERROR_NOT_SUPPORTED);
    t.expect_local(t.client(FN(cuLibraryGetManaged), &address, &bytes, library, nullptr),
                   CUDA_ERROR_INVALID_VALUE);
  });
  table.add("cuLibraryGetModule", [](Trial& t) {
    const Both<CUlibrary> library = new_library(t);
    Both<CUmodule> module;
    t.same(FN(cuLibraryGetModule), out(module), library);
    Both<CUfunction> function;
    t.same(FN(cuModuleGetFunction), out(function), module, "add");
  });
}

}  // namespace

void add_library_trials(TrialTable& table) {
  add_loads(table);
  add_kernels(table);
}

}  // namespace gpurun::parity
