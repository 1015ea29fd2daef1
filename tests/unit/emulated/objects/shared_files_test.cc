// Shared memory files: other processes of a lease write them while this process uses them. Memory
// that its giver could take away again is not mapped. Nothing beyond the file is accessed. The
// contents may be anything, and are read once, into private memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/unique_fd.h"
#include "driver_abi/cuda_abi.h"
#include "emulated/objects/ipc_file.h"
#include "emulated/objects/shared_event.h"

namespace gpurun::emulated {
namespace api {
CUresult cuInit(unsigned int);
CUresult cuMemCreate(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                     unsigned long long);
CUresult cuMemRelease(CUmemGenericAllocationHandle);
CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle,
                                      CUmemAllocationHandleType, unsigned long long);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*,
                                        CUmemAllocationHandleType);
}  // namespace api

namespace {

constexpr std::size_t kBytes = std::size_t{2} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

std::vector<char> bytes_in(int file) {
  std::vector<char> bytes(static_cast<std::size_t>(lseek(file, 0, SEEK_END)));
  EXPECT_EQ(pread(file, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  return bytes;
}

UniqueFd file_of(const std::vector<char>& bytes, int seals) {
  UniqueFd made(memfd_create("shared-files-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(write(made.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(fcntl(made.get(), F_ADD_SEALS, seals), 0);
  return made;
}

CUresult import(int file) {
  CUmemGenericAllocationHandle memory = 0;
  const CUresult result = api::cuMemImportFromShareableHandle(
      &memory, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), kDescriptor);
  if (result == CUDA_SUCCESS) {
    EXPECT_EQ(api::cuMemRelease(memory), CUDA_SUCCESS);
  }
  return result;
}

TEST(SharedFiles, ImportRejectsUnsealedOrDamagedAllocation) {
  ASSERT_EQ(api::cuInit(0), CUDA_SUCCESS);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = kDescriptor;
  CUmemGenericAllocationHandle memory = 0;
  ASSERT_EQ(api::cuMemCreate(&memory, kBytes, &properties, 0), CUDA_SUCCESS);
  int number = -1;
  ASSERT_EQ(api::cuMemExportToShareableHandle(&number, memory, kDescriptor, 0), CUDA_SUCCESS);
  const UniqueFd exported(number);
  std::vector<char> all = bytes_in(exported.get());
  ASSERT_GT(all.size(), kBytes);
  EXPECT_EQ(import(exported.get()), CUDA_SUCCESS);
  EXPECT_EQ(import(file_of(all, kSeals).get()), CUDA_SUCCESS);
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW}) {
    EXPECT_EQ(import(file_of(all, seals).get()), CUDA_ERROR_INVALID_VALUE) << seals;
  }
  const std::vector<char> cut(all.begin(), all.end() - 1);
  EXPECT_EQ(import(file_of(cut, kSeals).get()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(import(file_of({}, kSeals).get()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(import(file_of(std::vector<char>(4096), kSeals).get()), CUDA_ERROR_INVALID_VALUE);
  std::vector<char> elsewhere = all;
  elsewhere[kBytes + 8] = 99;  // A device that does not exist.
  EXPECT_EQ(import(file_of(elsewhere, kSeals).get()), CUDA_ERROR_INVALID_DEVICE);
  all[kBytes] ^= 1;
  EXPECT_EQ(import(file_of(all, kSeals).get()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(import(-1), CUDA_ERROR_INVALID_VALUE);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(import(ends[0]), CUDA_ERROR_INVALID_VALUE);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(api::cuMemRelease(memory), CUDA_SUCCESS);
}

bool opens(const IpcHandle& handle, int file) {
  adopt_ipc_file(handle, file);
  return open_ipc_file(handle).valid();
}

TEST(SharedFiles, OpenRejectsForgedIpcHandle) {
  IpcFile file;
  ASSERT_TRUE(file.create("shared-files-test", kBytes));
  IpcHandle good{};
  ASSERT_TRUE(file.enter(IpcKind::kMemory, 4096, kBytes - 4096, 0, &good));
  ASSERT_TRUE(opens(good, file.fd()));
  const auto refused = [&](auto change) {
    IpcHandle bad = good;
    change(bad);
    return !opens(bad, file.fd());
  };
  EXPECT_TRUE(refused([](IpcHandle& bad) { ++bad.bytes; }));
  EXPECT_TRUE(refused([](IpcHandle& bad) { bad.bytes = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](IpcHandle& bad) { bad.offset += 4096; }));
  EXPECT_TRUE(refused([](IpcHandle& bad) { bad.offset = ~std::uint64_t{4095}; }));
  EXPECT_TRUE(refused([](IpcHandle& bad) { ++bad.entry; }));
  EXPECT_TRUE(refused([](IpcHandle& bad) { bad.entry = IpcFile::kEntries; }));
  EXPECT_TRUE(refused([](IpcHandle& bad) { bad.entry = ~0u; }));
  EXPECT_TRUE(refused([](IpcHandle& bad) { bad.nonce[15] ^= 1; }));
  EXPECT_TRUE(refused([](IpcHandle& bad) { bad.nonce = {}; }));
  EXPECT_TRUE(refused([](IpcHandle& bad) { ++bad.file; }));
  // The same bytes under the same handle, except for its number. Only the seals decide.
  const std::vector<char> all = bytes_in(file.fd());
  for (const int seals : {kSeals, F_SEAL_SHRINK, 0}) {
    const UniqueFd copy = file_of(all, seals);
    struct stat about {};
    ASSERT_EQ(fstat(copy.get(), &about), 0);
    IpcHandle handle = good;
    handle.file = about.st_ino;
    EXPECT_EQ(opens(handle, copy.get()), seals == kSeals) << seals;
  }
  const UniqueFd small = file_of(std::vector<char>(4096), kSeals);
  struct stat about {};
  ASSERT_EQ(fstat(small.get(), &about), 0);
  EXPECT_TRUE(!refused([](IpcHandle&) {}));
  IpcHandle handle = good;
  handle.file = about.st_ino;
  EXPECT_FALSE(opens(handle, small.get()));
  file.strike(good);
  EXPECT_FALSE(opens(good, file.fd()));
}

// Any process with the file of an event may write anything there at any time.
TEST(SharedFiles, EventSurvivesArbitraryFileContents) {
  const auto event = SharedEvent::create();
  ASSERT_NE(event, nullptr);
  IpcHandle handle{};
  ASSERT_TRUE(event->share(&handle));
  handle.offset = ~std::uint64_t{0};
  EXPECT_EQ(SharedEvent::open(handle), nullptr);
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  std::vector<unsigned> noise(4096);
  for (int round = 0; round < 200; ++round) {
    for (unsigned& word : noise) word = static_cast<unsigned>(random());
    if (round == 0) noise.assign(noise.size(), ~0u);
    ASSERT_GT(pwrite(event->file(), noise.data(), noise.size() * sizeof(unsigned), 0), 0);
    const std::uint64_t last = event->last();
    static_cast<void>(event->done(last));
    const std::uint64_t record = event->begin();
    event->complete(record);
    event->wait(record);  // It returns soon, because the record is complete.
    EXPECT_TRUE(event->done(record));
  }
}

}  // namespace
}  // namespace gpurun::emulated
