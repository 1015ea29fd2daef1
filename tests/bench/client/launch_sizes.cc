// Launch sizes: launches with different numbers of parameters. They show the cost of one byte of a
// record, which bounds the gain of sending a repeated sequence of calls in fewer bytes.
#include <string>

#include "tests/bench/client/bench.h"

namespace gpurun::bench {
namespace {

constexpr int kLaunches = 20000;
constexpr int kRounds = 3;

std::string kernel_of(int parameters) {
  std::string text =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry many(.param .u64 p0";
  for (int i = 1; i < parameters; ++i) text += ", .param .u64 p" + std::to_string(i);
  return text + ")\n{\n  ret;\n}\n";
}

}  // namespace

void measure_launch_sizes(const Stage& s, Results* results) {
  for (const int count : {1, 8, 64, 256}) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    MUST(CU(cuModuleLoadData)(&module, kernel_of(count).c_str()));
    MUST(CU(cuModuleGetFunction)(&function, module, "many"));
    std::vector<std::uint64_t> values(static_cast<std::size_t>(count));
    std::vector<void*> parameters;
    for (std::uint64_t& value : values) parameters.push_back(&value);
    Row rate{"launches a second, " + std::to_string(8 * count) + " bytes of parameters", "1/s", {}};
    const int launches = results->count(kLaunches);
    for (int round = -1; round < kRounds; ++round) {
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < launches; ++i) {
        values[0] = static_cast<std::uint64_t>(i);
        MUST(CU(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, s.stream, parameters.data(),
                                nullptr));
      }
      MUST(CU(cuCtxSynchronize)());
      if (round >= 0) rate.samples.push_back(launches * 1e9 / nanoseconds(Clock::now() - start));
    }
    results->add(std::move(rate));
  }
}

}  // namespace gpurun::bench
