// Question: which stream memory operations release a stream that waits for a value?
#include "questions/questions.h"

namespace gpurun::probe {
namespace {

void pause_ms(int milliseconds) {
  const timespec pause{0, milliseconds * 1'000'000L};
  nanosleep(&pause, nullptr);
}

// Polls the stream for at most a second.
bool completes(const Stage& stage, CUstream stream) {
  for (int i = 0; i < 100; ++i) {
    if (CU(stage.driver, cuStreamQuery)(stream) == CUDA_SUCCESS) return true;
    pause_ms(10);
  }
  return false;
}

void with_comparison(const Stage& stage, CUstream other, const char* name, unsigned flags,
                     unsigned first, unsigned wanted, unsigned releasing, Answer* answer) {
  const Driver& driver = stage.driver;
  must(CU(driver, cuMemsetD32Async)(stage.memory, first, 1, other), "cuMemsetD32Async");
  must(CU(driver, cuStreamSynchronize)(other), "cuStreamSynchronize");
  const CUresult waits =
      CU(driver, cuStreamWaitValue32_v2)(stage.stream, stage.memory, wanted, flags);
  if (waits != CUDA_SUCCESS) {
    answer->fact(std::string("wait32.") + name, Json::result(waits));
    return;
  }
  pause_ms(50);
  const bool held = CU(driver, cuStreamQuery)(stage.stream) == CUDA_ERROR_NOT_READY;
  const CUresult writes = CU(driver, cuStreamWriteValue32_v2)(other, stage.memory, releasing, 0);
  const bool released = completes(stage, stage.stream);
  answer->fact(std::string("wait32.") + name,
               Json::object({{"holds", Json::boolean(held)},
                             {"write_result", Json::result(writes)},
                             {"released_by_write32", Json::boolean(released)}}));
  // Leave the stream free in every case.
  CU(driver, cuMemsetD32Async)(stage.memory, releasing, 1, other);
  completes(stage, stage.stream);
}

template <typename Release>
void released_by(const Stage& stage, const char* name, CUdeviceptr flag, const Release& release,
                 Answer* answer) {
  const CUresult waits =
      CU(stage.driver, cuStreamWaitValue32_v2)(stage.stream, flag, 5, CU_STREAM_WAIT_VALUE_GEQ);
  if (waits != CUDA_SUCCESS) {
    answer->fact(std::string("released_by.") + name, Json::result(waits));
    return;
  }
  pause_ms(50);
  const bool held = CU(stage.driver, cuStreamQuery)(stage.stream) == CUDA_ERROR_NOT_READY;
  release();
  answer->fact(std::string("released_by.") + name,
               Json::object({{"holds", Json::boolean(held)},
                             {"released", Json::boolean(completes(stage, stage.stream))}}));
}

}  // namespace

void ask_stream_values(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kContext);
  CUstream other = nullptr;
  must(CU(driver, cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  for (const int id : {92, 93, 94, 122, 123}) {
    int value = 0;
    const CUresult result =
        CU(driver, cuDeviceGetAttribute)(&value, static_cast<CUdevice_attribute>(id), stage.device);
    answer->fact("attribute." + std::to_string(id),
                 result == CUDA_SUCCESS ? Json::integer(value) : Json::result(result));
  }
  with_comparison(stage, other, "geq", CU_STREAM_WAIT_VALUE_GEQ, 0, 5, 7, answer);
  with_comparison(stage, other, "eq", CU_STREAM_WAIT_VALUE_EQ, 0, 5, 5, answer);
  with_comparison(stage, other, "and", CU_STREAM_WAIT_VALUE_AND, 0, 4, 6, answer);
  with_comparison(stage, other, "nor", CU_STREAM_WAIT_VALUE_NOR, ~0U, ~1U, 0, answer);

  const auto clear = [&] {
    must(CU(driver, cuMemsetD32Async)(stage.memory, 0, 1, other), "cuMemsetD32Async");
    must(CU(driver, cuStreamSynchronize)(other), "cuStreamSynchronize");
  };
  clear();
  released_by(
      stage, "memset_on_another_stream", stage.memory,
      [&] {
        CU(driver, cuMemsetD32Async)
        (stage.memory, 9, 1, other);
      },
      answer);
  clear();
  const unsigned nine = 9;
  released_by(
      stage, "copy_on_another_stream", stage.memory,
      [&] {
        CU(driver, cuMemcpyHtoDAsync_v2)
        (stage.memory, &nine, 4, other);
      },
      answer);

  void* pinned = nullptr;
  CUdeviceptr mapped = 0;
  CUresult result = CU(driver, cuMemHostAlloc)(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP);
  if (result == CUDA_SUCCESS) result = CU(driver, cuMemHostGetDevicePointer_v2)(&mapped, pinned, 0);
  if (result != CUDA_SUCCESS) {
    answer->fact("released_by.host_write", Json::result(result));
    return;
  }
  auto* word = static_cast<volatile unsigned*>(pinned);
  *word = 0;
  released_by(
      stage, "host_write", mapped, [word] { *word = 9; }, answer);
}

}  // namespace gpurun::probe
