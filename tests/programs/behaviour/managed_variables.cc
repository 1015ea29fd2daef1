// Driver API: `__managed__` variables. Host code finds them by cuLibraryGetManaged, without a
// context, and reads and writes them as its own memory. Kernels use the same addresses. Copies,
// fills and queries take them as managed memory.
//
// usage: managed_variables IMAGE [taken]
// With taken, the program has other memory at the addresses of the variables. It then gets an error
// for them, and kernels use them all the same.
#include <cuda.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/cuda.h"

namespace {

constexpr unsigned kTable = 40000;

void expect(unsigned seen, unsigned wanted, const char* what) {
  if (seen == wanted) return;
  std::printf("FAILED: %s: %#x and not %#x\n", what, seen, wanted);
  std::exit(1);
}

// The variables of one library, as host code uses them.
struct Variables {
  explicit Variables(const std::string& image) {
    MUST(cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  void find() {
    size_t bytes = 0;
    MUST(cuLibraryGetManaged(&at, &bytes, library, "counter"));
    EXPECT(bytes == sizeof *counter);
    counter = reinterpret_cast<unsigned*>(at);
    CUdeviceptr other = 0;
    MUST(cuLibraryGetManaged(&other, nullptr, library, "letter"));
    letter = reinterpret_cast<unsigned char*>(other);
    MUST(cuLibraryGetManaged(&other, &bytes, library, "table"));
    EXPECT(bytes == kTable * sizeof *table);
    table = reinterpret_cast<unsigned*>(other);
    MUST(cuLibraryGetManaged(&other, &bytes, library, "flags"));
    flags = reinterpret_cast<volatile unsigned*>(other);
  }
  void launch(const char* name, unsigned what) const {
    void* arguments[] = {&what};
    launch(name, arguments, (kTable + 255) / 256, 256);
  }
  void launch_late(unsigned what) const {
    unsigned turns = 50'000'000;
    void* arguments[] = {&turns, &what};
    launch("write_late", arguments, 1, 1);
  }
  void launch_answer() const { launch("answer", nullptr, 1, 1); }
  void launch(const char* name, void** arguments, unsigned blocks, unsigned threads) const {
    CUkernel kernel = nullptr;
    MUST(cuLibraryGetKernel(&kernel, library, name));
    MUST(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), blocks, 1, 1, threads, 1, 1, 0,
                        nullptr, arguments, nullptr));
  }
  const volatile unsigned* find_late() const {
    CUdeviceptr address = 0;
    MUST(cuLibraryGetManaged(&address, nullptr, library, "late"));
    return reinterpret_cast<volatile unsigned*>(address);
  }
  void expect_initial() const {
    expect(*counter, 7, "an initial value");
    expect(*letter, 'a', "an initial letter");
    expect(table[0] | table[kTable - 1], 0, "an initial table");
  }

  CUlibrary library = nullptr;
  CUdeviceptr at = 0;  // Of the counter.
  unsigned* counter = nullptr;
  unsigned char* letter = nullptr;
  unsigned* table = nullptr;
  volatile unsigned* flags = nullptr;
};

CUcontext make_context() {
  CUdevice device = 0;
  CUcontext context = nullptr;
  MUST(cuDeviceGet(&device, 0));
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  return context;
}

void lookups(const Variables& all) {
  CUdeviceptr again = 0;
  MUST(cuLibraryGetManaged(&again, nullptr, all.library, "counter"));
  EXPECT(again == all.at);
  MUST(cuLibraryGetManaged(nullptr, nullptr, all.library, "counter"));
  size_t bytes = 0;
  EXPECT(cuLibraryGetManaged(&again, &bytes, all.library, "no_such") == CUDA_ERROR_NOT_FOUND);
  EXPECT(cuLibraryGetManaged(&again, &bytes, all.library, "own") == CUDA_ERROR_NOT_FOUND);
  EXPECT(cuLibraryGetManaged(&again, &bytes, all.library, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

void attributes(const Variables& all) {
  CUdeviceptr global = 0;
  MUST(cuLibraryGetGlobal(&global, nullptr, all.library, "counter"));
  EXPECT(global == all.at);
  unsigned fact = 0;
  MUST(cuPointerGetAttribute(&fact, CU_POINTER_ATTRIBUTE_IS_MANAGED, all.at));
  expect(fact, 1, "IS_MANAGED");
  MUST(cuPointerGetAttribute(&fact, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, all.at));
  expect(fact, CU_MEMORYTYPE_DEVICE, "memory type");
  const CUdeviceptr inside = reinterpret_cast<CUdeviceptr>(all.table + 1000);
  void* host = nullptr;
  CUdeviceptr device = 0, start = 0;
  MUST(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
  MUST(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
  MUST(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  EXPECT(host == all.table + 1000 && device == inside && start == inside - 4000);
  EXPECT(cuMemFree(all.at) == CUDA_ERROR_INVALID_VALUE);
  int mostly = 7;
  const CUdeviceptr table = reinterpret_cast<CUdeviceptr>(all.table);
  MUST(cuMemAdvise(table, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, CUmemLocation{}));
  MUST(cuMemRangeGetAttribute(&mostly, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, table, 4096));
  expect(static_cast<unsigned>(mostly), 1, "READ_MOSTLY");
}

void kernels(const Variables& all) {
  unsigned wanted = *all.counter;
  for (unsigned round = 1; round <= 20; ++round) {
    *all.counter += round;
    all.table[round] = 100 * round;
    all.launch("advance", 3);
    MUST(cuCtxSynchronize());
    wanted += round + 3 + 5;
    expect(*all.counter, wanted, "a counter of host and kernel");
    expect(all.table[round], 100 * round + 3 + round,
           "a word of the host's, and then the kernel's");
    expect(all.table[kTable - 1], round * (3 + kTable - 1), "the last word of the table");
    expect(*all.letter, 'a' + round, "a letter");
  }
  // Two kernels, and no wait of the host between them.
  *all.counter = 1;
  all.launch("advance", 0);
  all.launch("advance", 0);
  MUST(cuCtxSynchronize());
  expect(*all.counter, 11, "two kernels");
}

void copies(const Variables& all) {
  CUdeviceptr memory = 0;
  MUST(cuMemAlloc(&memory, 4096));
  unsigned words[4] = {1, 2, 3, 4}, back[4] = {};
  const CUdeviceptr table = reinterpret_cast<CUdeviceptr>(all.table);
  MUST(cuMemcpyHtoD(table + 64, words, sizeof words));
  expect(all.table[19], 4, "a copy to a variable");
  all.table[19] = 44;
  MUST(cuMemcpyDtoH(back, table + 64, sizeof back));
  expect(back[3], 44, "a copy from a variable");
  MUST(cuMemcpyDtoD(memory, table + 64, sizeof words));
  MUST(cuMemcpyDtoH(back, memory, sizeof back));
  expect(back[3] + back[0], 45, "a copy to the device");
  MUST(cuMemcpyAsync(table + 8192, memory, 16, nullptr));
  MUST(cuStreamSynchronize(nullptr));
  expect(all.table[2051], 44, "a copy from the device");
  MUST(cuMemsetD32(all.at, 0x33, 1));
  expect(*all.counter, 0x33, "a fill");
  MUST(cuMemFree(memory));
}

// Host and kernel exchange a word while the kernel runs.
void flags(const Variables& all) {
  all.flags[0] = all.flags[1] = 0;
  all.launch_answer();
  EXPECT(cuStreamQuery(nullptr) == CUDA_ERROR_NOT_READY);
  all.flags[0] = 0x55;
  while (all.flags[1] == 0) {
  }
  expect(all.flags[1], 0x56, "a flag");
  MUST(cuCtxSynchronize());
}

// The host finds a variable when kernels have already used it.
void late_lookups(const std::string& image) {
  const CUcontext context = make_context();
  for (unsigned round = 1; round <= 3; ++round) {
    const Variables complete(image);
    CUdeviceptr memory = 0;
    MUST(cuMemAlloc(&memory, 4096));
    complete.launch_late(round);
    MUST(cuMemFree(memory));  // Waits for the kernel, as far as a program can notice.
    expect(*complete.find_late(), round, "a variable after its kernel");
    MUST(cuLibraryUnload(complete.library));
    const Variables running(image);
    running.launch_late(10 * round);
    const volatile unsigned* const late = running.find_late();
    MUST(cuCtxSynchronize());
    expect(*late, 10 * round, "a variable that was found while its kernel ran");
    MUST(cuLibraryUnload(running.library));
  }
  MUST(cuCtxDestroy(context));
}

void usable(const std::string& image) {
  Variables all(image);
  all.find();
  all.expect_initial();
  lookups(all);
  *all.counter = 9;  // Before any context exists.
  const CUcontext context = make_context();
  all.launch("advance", 1);
  MUST(cuCtxSynchronize());
  expect(*all.counter, 15, "a store before the first context");
  *all.counter = 7;
  *all.letter = 'a';
  std::memset(all.table, 0, kTable * sizeof *all.table);
  attributes(all);
  kernels(all);
  copies(all);
  flags(all);
  // The same code once more has variables of its own.
  Variables second(image);
  second.find();
  EXPECT(second.at != all.at && second.table != all.table);
  second.expect_initial();
  *all.counter = 50;
  *second.counter = 60;
  second.launch("advance", 0);
  MUST(cuCtxSynchronize());
  expect(*all.counter, 50, "another library's variable");
  expect(*second.counter, 65, "the second library's variable");
  // Unloaded and loaded again, they have their initial values.
  for (int round = 0; round < 10; ++round) {
    MUST(cuLibraryUnload(second.library));
    second = Variables(image);
    second.find();
    second.expect_initial();
    *second.counter = 70;
    second.launch("advance", 0);
    MUST(cuCtxSynchronize());
    expect(*second.counter, 75, "a variable of a library that was loaded again");
    expect(*all.counter, 50, "another library's variable, later");
  }
  // They belong to no context.
  MUST(cuCtxDestroy(context));
  expect(*all.counter, 50, "a variable behind the context's end");
  *all.counter = 51;
  (void)make_context();
  all.launch("advance", 0);
  MUST(cuCtxSynchronize());
  expect(*all.counter, 56, "a variable in another context");
  MUST(cuLibraryUnload(all.library));
  MUST(cuLibraryUnload(second.library));
}

// The emulated device places variables of the next library near those of the last one.
void take_pages_behind(CUdeviceptr address) {
  constexpr CUdeviceptr kPage = 4096;
  for (CUdeviceptr page = address & ~(kPage - 1), end = page + (8 << 20); page < end;
       page += kPage) {
    (void)mmap(reinterpret_cast<void*>(page), kPage, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  }
}

void taken(const std::string& image) {
  Variables first(image), second(image);
  first.find();
  take_pages_behind(first.at);
  for (int round = 0; round < 2; ++round) {
    CUdeviceptr address = 0;
    EXPECT(cuLibraryGetManaged(&address, nullptr, second.library, "counter") ==
           CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(address == 0);
  }
  (void)make_context();
  CUdeviceptr counter = 0;
  MUST(cuLibraryGetGlobal(&counter, nullptr, second.library, "counter"));
  second.launch("advance", 1);
  unsigned value = 0;
  MUST(cuMemcpyDtoH(&value, counter, sizeof value));
  expect(value, 13, "a variable that kernels alone use");
  first.launch("advance", 2);
  MUST(cuCtxSynchronize());
  expect(*first.counter, 14, "a variable beside it");
}

}  // namespace

int main(int, char** arguments) {
  std::ifstream file(arguments[1], std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  MUST(cuInit(0));
  if (arguments[2] != nullptr) {
    taken(image);
  } else {
    late_lookups(image);
    usable(image);
  }
  std::puts("PASSED");
  return 0;
}
