// Question: which fixed address windows does the driver grant? The client mirrors device addresses
// in its own address space, so both must be able to agree on them beforehand.
#include <sys/mman.h>

#include "questions/questions.h"

namespace gpurun::probe {
namespace {

struct Window {
  std::uint64_t base;
  std::uint64_t bytes;
};

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;

constexpr std::uint64_t kBases[] = {
    0x10'0000'0000,   0x100'0000'0000,  0x200'0000'0000,  0x1000'0000'0000,  0x2000'0000'0000,
    0x3000'0000'0000, 0x4000'0000'0000, 0x5000'0000'0000, 0x6000'0000'0000,  0x7000'0000'0000,
    0x7a00'0000'0000, 0x7f00'0000'0000, 0x8000'0000'0000, 0x1'0000'0000'0000};

Json reserve(const Driver& driver, const Window& window) {
  CUdeviceptr got = 0;
  const CUresult result = CU(driver, cuMemAddressReserve)(&got, window.bytes, 0, window.base, 0);
  if (result != CUDA_SUCCESS) return Json::result(result);
  CU(driver, cuMemAddressFree)(got, window.bytes);
  if (got == window.base) return Json::text("honoured");
  return Json::object({{"elsewhere", Json::address(got)}});
}

std::string name_of(const char* what, const Window& window) {
  char text[96];
  std::snprintf(text, sizeof text, "%s.0x%llx.%lluGiB", what,
                static_cast<unsigned long long>(window.base),
                static_cast<unsigned long long>(window.bytes / kGiB));
  return text;
}

}  // namespace

void ask_address_windows(const std::string& libcuda, Answer* answer) {
  const Driver driver(libcuda);
  Stage stage(driver, Level::kContext);
  answer->fact("example_of_cuMemAlloc", Json::address(stage.memory));
  CUdeviceptr anywhere = 0;
  const CUresult result = CU(driver, cuMemAddressReserve)(&anywhere, 64 * kGiB, 0, 0, 0);
  answer->fact("without_a_wish.64GiB",
               result == CUDA_SUCCESS ? Json::address(anywhere) : Json::result(result));
  if (result == CUDA_SUCCESS) CU(driver, cuMemAddressFree)(anywhere, 64 * kGiB);

  for (const std::uint64_t base : kBases) {
    for (const std::uint64_t bytes : {kGiB, 64 * kGiB, kTiB}) {
      const Window window{base, bytes};
      answer->fact(name_of("window", window), reserve(driver, window));
    }
  }
  // The largest range that it grants at all.
  for (std::uint64_t bytes = 64 * kTiB; bytes >= kGiB; bytes /= 2) {
    CUdeviceptr got = 0;
    if (CU(driver, cuMemAddressReserve)(&got, bytes, 0, 0, 0) != CUDA_SUCCESS) continue;
    CU(driver, cuMemAddressFree)(got, bytes);
    answer->fact("largest_range_gib", Json::integer(static_cast<std::int64_t>(bytes / kGiB)));
    break;
  }
  // Addresses that this process itself has mapped, as a client in the server's process would.
  for (const std::uint64_t base :
       {std::uint64_t{0x2000'0000'0000}, std::uint64_t{0x6000'0000'0000}}) {
    const Window window{base, kGiB};
    void* held = mmap(reinterpret_cast<void*>(base), kGiB, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const bool ours = held == reinterpret_cast<void*>(base);
    answer->fact(name_of("window_held_by_the_process", window),
                 ours ? reserve(driver, window) : Json::text("could not be mapped here"));
    if (held != MAP_FAILED) munmap(held, kGiB);
  }
}

}  // namespace gpurun::probe
