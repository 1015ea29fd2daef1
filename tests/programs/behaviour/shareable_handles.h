// Shareable handles: owners of exportable allocations and of their mappings, and a wire that
// carries descriptors between processes.
#pragma once

#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <utility>

#include "interprocess.h"

namespace shareable {

inline constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

inline CUresult create_into(CUmemGenericAllocationHandle* out, size_t bytes,
                            CUmemAllocationHandleType type = kDescriptor, int ordinal = 0) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  properties.requestedHandleTypes = type;
  return cuMemCreate(out, bytes, &properties, 0);
}
inline CUresult import_into(CUmemGenericAllocationHandle* out, int descriptor) {
  return cuMemImportFromShareableHandle(
      out, reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)), kDescriptor);
}

// Owns one reference of an allocation.
class Allocation {
 public:
  explicit Allocation(size_t bytes, CUmemAllocationHandleType type = kDescriptor, int ordinal = 0) {
    MUST(create_into(&handle, bytes, type, ordinal));
  }
  static Allocation imported(int descriptor) {
    Allocation made;
    MUST(import_into(&made.handle, descriptor));
    return made;
  }
  static Allocation of(CUmemGenericAllocationHandle handle) {
    Allocation made;
    made.handle = handle;
    return made;
  }
  Allocation(Allocation&& other) noexcept : handle(std::exchange(other.handle, 0)) {}
  ~Allocation() { release(); }

  int exported() const {
    int descriptor = -1;
    MUST(cuMemExportToShareableHandle(&descriptor, handle, kDescriptor, 0));
    EXPECT(descriptor >= 0);
    return descriptor;
  }
  void release() {
    if (handle != 0) MUST(cuMemRelease(std::exchange(handle, 0)));
  }

  CUmemGenericAllocationHandle handle = 0;

 private:
  Allocation() = default;
};

// Maps all of an allocation, for reads and writes.
class Mapping {
 public:
  Mapping(const Allocation& memory, size_t bytes, int ordinal = 0) : bytes_(bytes) {
    MUST(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    MUST(cuMemMap(address, bytes, 0, memory.handle, 0));
    const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, ordinal},
                                    CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemSetAccess(address, bytes, &access, 1));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    MUST(cuMemUnmap(address, bytes_));
    MUST(cuMemAddressFree(address, bytes_));
  }

  CUdeviceptr address = 0;

 private:
  const size_t bytes_;
};

// A Unix socket. The other process has its other end.
class Wire {
 public:
  explicit Wire(int socket) : socket_(socket) {}
  static Wire make() {
    int pair[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    Wire wire(pair[0]);
    wire.theirs_ = pair[1];
    return wire;
  }
  // Waits for the other process.
  static Wire listen_at(const char* path) {
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un address = address_of(path);
    EXPECT(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    EXPECT(listen(listener, 1) == 0);
    std::printf("ready\n");
    std::fflush(stdout);
    const Wire wire(accept(listener, nullptr, nullptr));
    EXPECT(wire.socket_ >= 0);
    return wire;
  }
  static Wire connect_to(const char* path) {
    const Wire wire(socket(AF_UNIX, SOCK_STREAM, 0));
    const sockaddr_un address = address_of(path);
    EXPECT(connect(wire.socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return wire;
  }

  // The other end's number, for the other program's command line.
  std::string word() const { return std::to_string(theirs_); }
  void send_descriptor(int descriptor) const {
    Message message;
    cmsghdr* const header = CMSG_FIRSTHDR(&message.header);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    EXPECT(sendmsg(socket_, &message.header, 0) == 1);
  }
  int receive_descriptor() const {
    Message message;
    EXPECT(recvmsg(socket_, &message.header, MSG_CMSG_CLOEXEC) == 1);
    const cmsghdr* const header = CMSG_FIRSTHDR(&message.header);
    EXPECT(header != nullptr && header->cmsg_type == SCM_RIGHTS);
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return descriptor;
  }
  // Waits until the other process has closed its end.
  void await_end() const {
    char none;
    EXPECT(read(socket_, &none, 1) == 0);
  }

 private:
  struct Message {
    char byte = '.';
    iovec bytes = {&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header = {};
    Message() {
      header.msg_iov = &bytes;
      header.msg_iovlen = 1;
      header.msg_control = control;
      header.msg_controllen = sizeof control;
    }
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;
  };
  static sockaddr_un address_of(const char* path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    EXPECT(std::strlen(path) < sizeof address.sun_path);
    std::strcpy(address.sun_path, path);
    return address;
  }

  int socket_;
  int theirs_ = -1;
};

// A copy of another process's descriptor. -1: this process may not fetch it.
inline int fetch_descriptor(pid_t process, int descriptor) {
  constexpr long kPidfdOpen = 434, kPidfdGetfd = 438;
  const auto watched = static_cast<int>(syscall(kPidfdOpen, process, 0));
  return watched < 0 ? -1 : static_cast<int>(syscall(kPidfdGetfd, watched, descriptor, 0));
}

}  // namespace shareable
