// Device: an open device of libibverbs. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

#include "transport/rdma/descriptors.h"

namespace gpurun::transport::rdma {

class Device {
 public:
  // Its descriptors, and those of its completion channels, are in `place`. nullptr with errno: the
  // library cannot open it.
  static std::unique_ptr<Device> open(ibv_device* listed, const DescriptorPlace& place = {});
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context() const noexcept { return context_; }
  const char* name() const noexcept { return ibv_get_device_name(context_->device); }
  const DescriptorPlace& place() const noexcept { return place_; }

  // Call it before a call of the library that may reach the kernel. False: the program has closed
  // the device's descriptor. Such calls fail from then on, and reach no file of the program.
  bool check() noexcept;

 private:
  Device(ibv_context* context, const DescriptorPlace& place) noexcept;

  ibv_context* const context_;
  const DescriptorPlace place_;
  FieldDescriptor commands_, events_;
};

}  // namespace gpurun::transport::rdma
