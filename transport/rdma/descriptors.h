// Descriptors: those that libibverbs opens, in the process of another program.
//
// The library uses a descriptor only by the field of its structure that has the number. So the
// field may get another number of the same file, and -1 once the number is no longer ours.
#pragma once

#include <csignal>

#include "base/descriptor_identity.h"
#include "base/descriptor_mark.h"

namespace gpurun::transport::rdma {

// What the owner of a process does so that its children lose descriptors
// (client/process/fork_guard.h). Static functions, because they outlive every connection.
struct ForkHooks {
  void (*hold_off_forks)() noexcept = nullptr;
  void (*let_forks)() noexcept = nullptr;
  void (*watch)(int fd) noexcept = nullptr;
  void (*forget)(int fd) noexcept = nullptr;
};

struct DescriptorPlace {
  int fd_min = 0;                    // As Options::fd_min. 0: no program shares the process.
  const ForkHooks* forks = nullptr;  // nullptr: children do not matter.
};

// No child is made while one exists, if the place has hooks. The thread's signals wait, because a
// handler that forks would block for ever. Not recursive.
class ForksHeldOff {
 public:
  explicit ForksHeldOff(const DescriptorPlace& place) noexcept;
  ~ForksHeldOff();
  ForksHeldOff(const ForksHeldOff&) = delete;
  ForksHeldOff& operator=(const ForksHeldOff&) = delete;

 private:
  const ForkHooks* const forks_;
  sigset_t before_{};
};

// A descriptor in a field of the library. One thread, except holds().
class FieldDescriptor {
 public:
  // Moves `*field` up, and has children close it. Call it with forks held off, right after the
  // library has opened the descriptor. Does nothing if that is -1.
  void take(int* field, const DescriptorPlace& place) noexcept;
  // Call it with forks held off, before the library closes the descriptor. Sets the field to -1 if
  // the number is no longer ours.
  void give_back() noexcept;
  bool is_taken() const noexcept { return field_ != nullptr; }
  // False: the program has closed it. The mark tells anonymous inodes apart, such as those of
  // completion channels, and two descriptors of one device. Both have one identity.
  bool holds() const noexcept;

 private:
  int* field_ = nullptr;
  int fd_ = -1;
  DescriptorPlace place_;
  DescriptorIdentity identity_;
  DescriptorMark mark_;
};

}  // namespace gpurun::transport::rdma
