// Kernels: loads modules and libraries, and finds their names.
#include "tests/parity/custom/kernels.h"

namespace gpurun::parity {

std::string new_image(Trial& t) {
  return std::string(kPtx) + "// " + std::to_string(t.draw(0, std::size_t(-1) >> 1)) + "\n";
}

AddArguments::AddArguments(Trial& t) {
  block_.a = t.draw(0, std::size_t(-1) >> 1);
  block_.n = static_cast<unsigned>(t.draw(0, 0xffffffff));
  const std::vector<unsigned char> drawn = t.bytes(sizeof block_.s);
  std::memcpy(block_.s, drawn.data(), sizeof block_.s);
}

Both<CUmodule> new_module(Trial& t, const std::string& image) {
  Both<CUmodule> module;
  const Seen seen = t.client(FN(cuModuleLoadData), &module.client, image.c_str());
  EXPECT_EQ(seen.result, CUDA_SUCCESS);
  t.bind(module, seen, "cuModuleLoadDataEx", "module");
  t.at_end([&t, module] { (void)t.call_client(FN(cuModuleUnload), module); });
  return module;
}

Both<CUlibrary> new_library(Trial& t, const std::string& image) {
  Both<CUlibrary> library;
  const Seen seen = t.client(FN(cuLibraryLoadData), &library.client, image.c_str(), nullptr,
                             nullptr, 0u, nullptr, nullptr, 0u);
  EXPECT_EQ(seen.result, CUDA_SUCCESS);
  t.bind(library, seen, "cuLibraryLoadData", "library");
  t.at_end([&t, library] { (void)t.call_client(FN(cuLibraryUnload), library); });
  return library;
}

Both<CUfunction> function_of(Trial& t, const Both<CUmodule>& module, const char* name) {
  Both<CUfunction> function;
  const Seen seen = t.client(FN(cuModuleGetFunction), &function.client, module, name);
  EXPECT_EQ(seen.result, CUDA_SUCCESS);
  t.bind(function, seen, "cuModuleGetFunction", "hfunc");
  return function;
}

Both<CUkernel> kernel_of(Trial& t, const Both<CUlibrary>& library, const char* name) {
  Both<CUkernel> kernel;
  const Seen seen = t.client(FN(cuLibraryGetKernel), &kernel.client, library, name);
  EXPECT_EQ(seen.result, CUDA_SUCCESS);
  t.bind(kernel, seen, "cuLibraryGetKernel", "pKernel");
  return kernel;
}

Both<CUfunction> any_function(Trial& t) {
  if (t.draw(0, 1) == 0) return function_of(t, new_module(t), "add");
  const Both<CUkernel> kernel = kernel_of(t, new_library(t), "add");
  return {reinterpret_cast<CUfunction>(kernel.client), reinterpret_cast<CUfunction>(kernel.driver)};
}

}  // namespace gpurun::parity
