// GraphMemory: memory that belongs to a graph (memory nodes), and the program's objects that a
// graph keeps.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "emulated/objects/context.h"
#include "emulated/objects/graph.h"
#include "emulated/objects/operation.h"

namespace gpurun::emulated {

class Device;

// Memory at one address as long as the graph and its executables live. A free node or
// cuMemFreeAsync only marks that the program has finished with it. CUDA would then reuse it, but
// here its bytes stay charged. When the graph ends, memory that a launch allocated and that was not
// freed becomes ordinary memory ("can be accessed ... before the allocation is freed", cuda.h,
// cuGraphAddMemAllocNode).
class GraphMemory {
 public:
  // nullptr: the device's memory is used up.
  static std::shared_ptr<GraphMemory> allocate(Device& device, std::uint64_t bytes);
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  std::uint64_t address() const { return address_; }
  // Records that a launch has allocated, or that the program or a node has freed, the memory there.
  static void note_allocated(std::uint64_t address);
  static void note_freed(std::uint64_t address);
  // Counts all graphs of a device. See cuDeviceGetGraphMemAttribute.
  static std::uint64_t bytes_in_use(const Device& device);

 private:
  GraphMemory(std::uint64_t address, std::uint64_t bytes, int device)
      : address_(address), bytes_(bytes), device_(device) {}
  const std::uint64_t address_;
  const std::uint64_t bytes_;
  const int device_;
};

// The position of an allocation or a free in a graph. An allocation keeps the list of accesses that
// the program gave. Here every device reaches all memory.
class GraphMemoryOperation final : public Operation {
 public:
  GraphMemoryOperation(CUgraphNodeType type, std::uint64_t address, std::uint64_t bytes, int device,
                       std::vector<CUmemAccessDesc> accesses = {})
      : type_(type),
        address_(address),
        bytes_(bytes),
        device_(device),
        accesses_(std::move(accesses)) {}
  CUresult run(Context&) override;
  CUgraphNodeType graph_node_type() const override { return type_; }
  std::uint64_t address() const { return address_; }
  std::uint64_t bytes() const { return bytes_; }
  int device() const { return device_; }
  const std::vector<CUmemAccessDesc>& accesses() const { return accesses_; }

 private:
  const CUgraphNodeType type_;
  const std::uint64_t address_;
  const std::uint64_t bytes_;
  const int device_;
  const std::vector<CUmemAccessDesc> accesses_;
};

// A reference-counted object of the program with its destructor (cuUserObjectCreate).
class UserObject final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kUserObject;
  UserObject(void* data, CUhostFn destroy, unsigned count)
      : Object(kKind), data_(data), destroy_(destroy), count_(count) {}

  void retain(unsigned count) { count_.fetch_add(count, std::memory_order_relaxed); }
  // Ends the handle and calls the destructor when no reference is left.
  static void release(const std::shared_ptr<UserObject>& object, unsigned count);

 private:
  void* const data_;
  const CUhostFn destroy_;
  std::atomic<std::uint64_t> count_;
};

// References that a graph holds.
class UserObjectReference {
 public:
  UserObjectReference(std::shared_ptr<UserObject> object, unsigned count)
      : object_(std::move(object)), count_(count) {}
  ~UserObjectReference() { UserObject::release(object_, count_); }
  UserObjectReference(const UserObjectReference&) = delete;
  UserObjectReference& operator=(const UserObjectReference&) = delete;
  const UserObject* object() const { return object_.get(); }
  unsigned count() const { return count_; }

 private:
  const std::shared_ptr<UserObject> object_;
  const unsigned count_;
};

}  // namespace gpurun::emulated
