// Module calls: requests for modules, kernels and links, their replies, and code images as they
// travel.
#include <cstring>
#include <memory>
#include <new>

#include "protocol/calls/image_bundle.h"
#include "protocol/calls/link_calls.h"
#include "protocol/calls/module_calls.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace gpurun;
using namespace gpurun::protocol;

// An accepted payload has the length of its own encoding.
template <typename T>
void check(const Result<T>& unpacked, ByteView payload) {
  if (unpacked.ok()) GPURUN_FUZZ_CHECK(pack(*unpacked).size() == payload.size());
}

// Uses numbers that no other kind of message has.
bool take_link(std::uint8_t which, ByteView payload) {
  switch (which) {
    case 0xfc:
      check(unpack_link_create(payload), payload);
      return true;
    case 0xfd:
      check(unpack_link_input(payload), payload);
      return true;
    case 0xfe:
      GPURUN_FUZZ_CHECK(unpack_link_complete(payload).ok() == (payload.size() == 16));
      return true;
    case 0xff:
      check(unpack_link_reply(payload), payload);
      return true;
    default:
      return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::uint8_t which = input.number<std::uint8_t>();
  // Private and aligned memory of exactly that size.
  const std::size_t bytes = input.rest().size();
  const std::unique_ptr<std::byte[], void (*)(std::byte*)> memory(
      static_cast<std::byte*>(::operator new (bytes, std::align_val_t{16})),
      [](std::byte* start) { ::operator delete (start, std::align_val_t{16}); });
  if (bytes != 0) std::memcpy(memory.get(), input.rest().data(), bytes);
  const ByteView payload(memory.get(), bytes);
  if (take_link(which, payload)) return 0;
  switch (which % 6) {
    case 0:
      if (const auto loads = unpack_loads(payload); loads.ok()) {
        GPURUN_FUZZ_CHECK(loads->size() <= kLoadsMax);
        static_cast<void>(pack(*loads));
      }
      break;
    case 1:
      if (const auto outcomes = unpack_outcomes(payload); outcomes.ok()) {
        static_cast<void>(pack(*outcomes));
      }
      break;
    case 2:
      if (const auto request = unpack_name_request(payload); request.ok()) {
        GPURUN_FUZZ_CHECK(request->name.size() < limits::kStringBytesMax);
      }
      break;
    case 3:
      if (const auto kernel = unpack_kernel(payload); kernel.ok()) {
        GPURUN_FUZZ_CHECK(parameter_block_bytes(kernel->parameters) <=
                          limits::kKernelParameterBytesMax);
        GPURUN_FUZZ_CHECK(layout_hash(kernel->parameters) != 0);
      }
      break;
    case 4:
      if (const auto node = unpack_kernel_node(payload); node.ok()) {
        GPURUN_FUZZ_CHECK(node->block.size() == node->launch.parameter_bytes);
      }
      break;
    default:
      if (const auto image = open_bundle(payload); image.ok()) {
        const Bytes again = make_bundle(*image);
        GPURUN_FUZZ_CHECK(again.size() == bundle_bytes(*image));
        const DriverImage driver_image(*image);
        GPURUN_FUZZ_CHECK(driver_image.code() != nullptr);
      }
  }
  return 0;
}
