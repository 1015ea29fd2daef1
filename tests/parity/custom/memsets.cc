// Fills of device memory.
#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {
namespace {

constexpr char kTranslation[] = "its asynchronous form, in the default stream";

template <typename Value>
struct Fill {
  CUdeviceptr memory;
  Value value;
  std::size_t count;

  explicit Fill(Trial& t)
      : memory(t.memory(20'000) + t.draw(0, 100) * sizeof(Value)),
        value(static_cast<Value>(t.draw(0, 0xffffffff))),
        count(t.draw(1, 4'000)) {}
};

template <typename Value, typename Synchronous, typename Asynchronous>
void add_pair(TrialTable& table, Synchronous synchronous, Asynchronous asynchronous) {
  table.translated(synchronous.name, kTranslation, [=](Trial& t) {
    const Fill<Value> fill(t);
    t.expect_same(t.client(synchronous, fill.memory, fill.value, fill.count),
                  t.direct(asynchronous, fill.memory, fill.value, fill.count, t.default_stream()));
  });
  table.add(asynchronous.name, [=](Trial& t) {
    const Fill<Value> fill(t);
    t.same(asynchronous, fill.memory, fill.value, fill.count, t.stream());
  });
}

}  // namespace

void add_memset_trials(TrialTable& table) {
  add_pair<unsigned char>(table, FN(cuMemsetD8_v2), FN(cuMemsetD8Async));
  add_pair<unsigned short>(table, FN(cuMemsetD16_v2), FN(cuMemsetD16Async));
  add_pair<unsigned>(table, FN(cuMemsetD32_v2), FN(cuMemsetD32Async));
}

}  // namespace gpurun::parity
