// Links: concatenates all PTX texts to an image, and writes one line for each input to the logs of
// the state. Like a compiler it refuses broken text, which here begins with "broken".
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "driver_abi/linked_image.h"
#include "tests/drivers/null/api.h"
#include "tests/drivers/null/entry.h"

namespace gpurun::null_device::api {
namespace {

// The caller's memory, valid as long as the state lives.
struct Log {
  char* buffer = nullptr;
  void** value = nullptr;
  std::size_t room = 0;
  std::string all;

  void add(const std::string& line) {
    all += line;
    if (buffer == nullptr || value == nullptr || room == 0) return;
    const std::size_t bytes = std::min(all.size(), room - 1);
    std::memcpy(buffer, all.data(), bytes);
    buffer[bytes] = '\0';
    *value = reinterpret_cast<void*>(bytes);
  }
};

struct Link {
  Log info, error;
  void** wall_time = nullptr;
  float milliseconds = 0;
  std::vector<std::string> texts;
  Bytes image;
};

struct Links {
  std::mutex mutex;
  std::map<CUlinkState, Link> all;
};

Links& links() {
  alignas(Links) static unsigned char storage[sizeof(Links)];
  static auto* const all = new (storage) Links;
  return *all;
}

void read_option(Link& link, CUjit_option option, void** value) {
  switch (option) {
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER:
      (option == CU_JIT_INFO_LOG_BUFFER ? link.info : link.error).buffer =
          static_cast<char*>(*value);
      return;
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: {
      Log& log = option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES ? link.info : link.error;
      log.value = value;
      log.room = reinterpret_cast<std::uintptr_t>(*value);
      return;
    }
    case CU_JIT_WALL_TIME:
      link.wall_time = value;
      return;
    default:
      return;
  }
}

}  // namespace

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option* options, void** optionValues,
                         CUlinkState* stateOut) {
  if (stateOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *stateOut = mint_as<CUlinkState>(driver_abi::HandleKind::kLinkState);
  const std::lock_guard lock(links().mutex);
  Link& link = links().all[*stateOut];
  for (unsigned i = 0; i < numOptions; ++i) read_option(link, options[i], &optionValues[i]);
  return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, size_t size,
                          const char* name, unsigned int, CUjit_option*, void**) {
  const std::lock_guard lock(links().mutex);
  const auto found = links().all.find(state);
  if (found == links().all.end()) return CUDA_ERROR_INVALID_HANDLE;
  Link& link = found->second;
  const std::string_view text(static_cast<const char*>(data), size);
  const std::string named = name == nullptr ? "nameless" : name;
  if (text.substr(0, 6) == "broken") {
    link.error.add(named + " is broken\n");
    return CUDA_ERROR_INVALID_PTX;
  }
  if (type == CU_JIT_INPUT_PTX) link.texts.emplace_back(text.substr(0, text.find('\0')));
  link.info.add(named + ": " + std::to_string(size) + " bytes\n");
  link.milliseconds += 1;
  if (link.wall_time != nullptr) {
    std::memcpy(link.wall_time, &link.milliseconds, sizeof link.milliseconds);
  }
  return CUDA_SUCCESS;
}

CUresult cuLinkComplete(CUlinkState state, void** cubinOut, size_t* sizeOut) {
  const std::lock_guard lock(links().mutex);
  const auto found = links().all.find(state);
  if (found == links().all.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (cubinOut == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Link& link = found->second;
  if (link.image.empty()) link.image = driver_abi::linked_image(link.texts);
  *cubinOut = link.image.data();
  if (sizeOut != nullptr) *sizeOut = link.image.size();
  return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
  const std::lock_guard lock(links().mutex);
  return links().all.erase(state) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace gpurun::null_device::api
