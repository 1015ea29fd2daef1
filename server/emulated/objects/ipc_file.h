// IpcFile: the memory files through which processes share an emulated device's memory and events,
// and the 64 bytes that name something in one of them (cuIpcGetMemHandle, cuIpcGetEventHandle).
//
// A handle says which descriptor of which process the file is, and carries 16 random bytes that
// stand in the file's book for as long as what it names may be opened: a handle of something that
// has ended, or that somebody made up, opens nothing. The file itself comes from /proc, which gives
// it to processes of the same user only; where a process may open nothing there, whoever stands
// around it hands the file over first (adopt_ipc_file()).
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
  std::int32_t descriptor;  // Of that process.
  std::uint32_t entry;      // Of the file's book.
  std::array<std::uint8_t, 16> nonce;
  std::uint64_t offset;  // Of memory: in the file.
  std::uint64_t bytes;   // Likewise.
  std::uint32_t device;  // Its index before CUDA_VISIBLE_DEVICES.
  std::uint32_t zero;
  std::uint64_t file;  // Its number in its file system.
};
static_assert(sizeof(IpcHandle) == kIpcHandleBytes);

// A memory file that cannot shrink: bytes that anybody may map, then a book of what may be opened.
// Any thread; immovable, because handles name its descriptor.
class IpcFile {
 public:
  static constexpr std::uint64_t kEntries = 16'384;

  IpcFile() = default;
  IpcFile(const IpcFile&) = delete;
  IpcFile& operator=(const IpcFile&) = delete;

  // `bytes`, a multiple of a page. False: it cannot be had, or a limit of this process on the size
  // of files forbids it.
  bool create(const char* name, std::uint64_t bytes);
  // Back to the start.
  void close() { file_.reset(); }
  bool valid() const { return file_.valid(); }
  int fd() const { return file_.get(); }

  // Names [offset, offset + bytes) in `handle`. False: the book is full, or the program has closed
  // the descriptor.
  bool enter(IpcKind kind, std::uint64_t offset, std::uint64_t bytes, int device,
             IpcHandle* handle);
  // Nobody opens it from now on.
  void strike(const IpcHandle& handle);

 private:
  bool write_entry(std::uint32_t entry, const std::array<std::uint8_t, 16>& nonce);

  UniqueFd file_;
  DescriptorIdentity identity_;
  std::uint64_t book_ = 0;              // Where it begins.
  std::uint32_t next_ = 0;              // Entries are taken in turn ...
  std::array<bool, kEntries> taken_{};  // ... where they are free.
};

// The file that `handle`, of another process, names something in; not valid: it names nothing (any
// more), or nothing that this process may open.
UniqueFd open_ipc_file(const IpcHandle& handle);

// From now on this is where the file of that very handle is found. `file` is copied.
void adopt_ipc_file(const IpcHandle& handle, int file);

}  // namespace gpurun::emulated
