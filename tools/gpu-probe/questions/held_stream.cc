// HeldStream: the spinning kernel, and the thread that is watched.
#include "questions/held_stream.h"

#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

namespace gpurun::probe {

HeldStream::HeldStream(const Stage& stage, CUstream stream) : stage_(stage) {
  const Driver& driver = stage.driver;
  must(CU(driver, cuStreamCreate)(&release_stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  must(CU(driver, cuMemAlloc_v2)(&flag_, 4), "cuMemAlloc");
  must(CU(driver, cuMemsetD32Async)(flag_, 0, 1, release_stream_), "cuMemsetD32Async");
  must(CU(driver, cuStreamSynchronize)(release_stream_), "cuStreamSynchronize");
  void* parameters[] = {&flag_};
  must(CU(driver, cuLaunchKernel)(stage.spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
       "cuLaunchKernel(spin)");
}

void HeldStream::release() {
  must(CU(stage_.driver, cuMemsetD32Async)(flag_, 1, 1, release_stream_), "cuMemsetD32Async");
  must(CU(stage_.driver, cuStreamSynchronize)(release_stream_), "cuStreamSynchronize");
}

bool returns_within(const Stage& stage, int milliseconds, const std::function<void()>& work,
                    const std::function<void()>& release) {
  std::promise<void> done;
  std::future<void> came_back = done.get_future();
  std::thread worker([&stage, &work, &done] {
    try {
      CU(stage.driver, cuCtxSetCurrent)(stage.context);
      work();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  const bool in_time =
      came_back.wait_for(std::chrono::milliseconds(milliseconds)) == std::future_status::ready;
  if (!in_time) {
    release();
    if (came_back.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      std::fprintf(stderr, "gpu-probe: a call did not return after the kernel was let go\n");
      std::_Exit(4);
    }
  }
  worker.join();
  came_back.get();  // Rethrows what `work` threw.
  return in_time;
}

}  // namespace gpurun::probe
