// IpcFile: the memory files through which processes share an emulated device's memory and events.
// Also the 64-byte handles that name something in such a file (cuIpcGetMemHandle,
// cuIpcGetEventHandle).
//
// A handle says in which process the file is, and under which descriptor. It has 16 random bytes,
// which are also in the file's book as long as the named object may be opened. So a handle of an
// object that has ended, or a forged handle, opens nothing. The file itself is opened through
// /proc, which allows it only to processes of the same user. Where a process may open nothing
// there, the program that uses this driver hands the file over first (adopt_ipc_file()).
#pragma once

#include <array>
#include <cstdint>

#include "base/descriptor_identity.h"
#include "base/unique_fd.h"

namespace gpurun::emulated {

inline constexpr std::size_t kIpcHandleBytes = 64;

enum class IpcKind : std::uint32_t { kMemory = 0x6d697067, kEvent = 0x65697067 };

struct IpcHandle {
  IpcKind kind;
  std::int32_t process;
  std::int32_t descriptor;  // In that process.
  std::uint32_t entry;      // In the file's book.
  std::array<std::uint8_t, 16> nonce;
  std::uint64_t offset;  // Memory: the place in the file.
  std::uint64_t bytes;   // Memory: the size.
  std::uint32_t device;  // Its index before CUDA_VISIBLE_DEVICES.
  std::uint32_t zero;
  std::uint64_t file;  // Its inode number.
};
static_assert(sizeof(IpcHandle) == kIpcHandleBytes);

// A memory file that cannot shrink: first bytes that any process may map, then a book of what may
// be opened. Any thread. Not movable, because handles name its descriptor.
class IpcFile {
 public:
  static constexpr std::uint64_t kEntries = 16'384;

  IpcFile() = default;
  IpcFile(const IpcFile&) = delete;
  IpcFile& operator=(const IpcFile&) = delete;

  // `bytes` is a multiple of a page. False: the file cannot be had, or this process has a limit on
  // the size of files.
  bool create(const char* name, std::uint64_t bytes);
  // Returns to the initial state.
  void close() { file_.reset(); }
  bool valid() const { return file_.valid(); }
  int fd() const { return file_.get(); }

  // Adds [offset, offset + bytes) to the book and fills `handle`. False: the book is full, or the
  // program has closed the descriptor.
  bool enter(IpcKind kind, std::uint64_t offset, std::uint64_t bytes, int device,
             IpcHandle* handle);
  // Removes the handle from the book. It opens nothing from then on.
  void strike(const IpcHandle& handle);

 private:
  bool write_entry(std::uint32_t entry, const std::array<std::uint8_t, 16>& nonce);

  UniqueFd file_;
  DescriptorIdentity identity_;
  std::uint64_t book_ = 0;              // Start of the book.
  std::uint32_t next_ = 0;              // Entries are taken in turn ...
  std::array<bool, kEntries> taken_{};  // ... where they are free.
};

// The file in which `handle`, of another process, names something. Not valid: the handle names
// nothing (any more), or nothing that this process may open.
UniqueFd open_ipc_file(const IpcHandle& handle);

// Whether `file` is a file of IpcFile, as far as its seals and its size show it.
bool is_ipc_file(int file);

// Makes open_ipc_file() use `file` for exactly that handle. `file` is duplicated.
void adopt_ipc_file(const IpcHandle& handle, int file);

}  // namespace gpurun::emulated
