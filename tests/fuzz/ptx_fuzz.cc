// PTX text, which anyone may write: the index of a module, and every function of it.
#include <string>

#include "emulated/ptx/index.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun::emulated;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto index = ptx::index_module(text);
  if (!index.ok()) return 0;
  for (const ptx::FunctionRange& range : index->functions) {
    GPURUN_FUZZ_CHECK(range.text.data() >= text.data() &&
                      range.text.data() + range.text.size() <= text.data() + text.size());
    static_cast<void>(ptx::parse_function(range));
  }
  return 0;
}
