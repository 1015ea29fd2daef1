// Launches: the parameter block must have the layout that the worker knows for the kernel, or be
// the program's own. Queries about clusters travel like launches.
#include <cstring>
#include <optional>

#include "driver_abi/semantics/launch_attributes.h"
#include "server/handlers/modules/module_state.h"
#include "server/handlers/modules/modules.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::LaunchAttribute;
using protocol::LaunchPayload;

// Replaces the client's event handle at the start of the value by the driver's.
int translate_event(const HandleTable& handles, LaunchAttribute& attribute) {
  std::uint64_t event = 0;
  std::memcpy(&event, attribute.value, sizeof event);
  const HandleTable::Found found = handles.find(event, HandleKind::kEvent);
  if (found.result != 0) return found.result;
  std::memcpy(attribute.value, &found.value, sizeof found.value);
  return 0;
}

// A launch in the driver's form. Not copied, because it points into itself.
struct DriverLaunch {
  LaunchPayload head;
  DriverLaunchConfig config{};
  DriverKernel kernel{HandleKind::kFunction, nullptr};
  LaunchAttribute attributes[protocol::kLaunchAttributesMax];

  // `attributes_at` is their offset in the payload. The size of the payload has been checked.
  int read(Call& call, std::size_t attributes_at) {
    // A CUkernel may be launched in place of a CUfunction (manual, cuLaunchKernel).
    HandleTable::Found found = call.handles().find(head.function, HandleKind::kFunction);
    if (found.result == kErrorInvalidHandle) {
      kernel.kind = HandleKind::kKernel;
      found = call.handles().find(head.function, kernel.kind);
    }
    if (found.result != 0) return found.result;
    kernel.value = reinterpret_cast<void*>(found.value);
    if (head.attribute_count != 0) {
      std::memcpy(attributes, call.payload().data() + attributes_at,
                  head.attribute_count * sizeof attributes[0]);
    }
    for (std::uint32_t i = 0; i < head.attribute_count; ++i) {
      const driver_abi::LaunchAttributeRule rule = driver_abi::launch_attribute(attributes[i].id);
      if (rule.use == driver_abi::LaunchAttributeUse::kEvent) {
        const int result = translate_event(call.handles(), attributes[i]);
        if (result != 0) return result;
      } else if (!rule.crosses) {
        return kErrorNotSupported;
      }
    }
    std::memcpy(config.grid, head.grid, sizeof config.grid);
    std::memcpy(config.block, head.block, sizeof config.block);
    config.shared_bytes = head.shared_bytes;
    config.stream = call.driver_stream();
    config.attributes = head.attribute_count == 0 ? nullptr : attributes;
    config.attribute_count = head.attribute_count;
    return 0;
  }
};

CallOutcome run_launch(Call& call) {
  DriverLaunch launch;
  std::memcpy(&launch.head, call.payload().data(), sizeof launch.head);
  const LaunchPayload& head = launch.head;
  int result = launch.read(call, protocol::launch_attributes_offset(head.parameter_bytes));
  if (result != 0) return CallOutcome::done(result);
  if (result = check_layout(call, head, launch.kernel); result != 0)
    return CallOutcome::done(result);
  // CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END (cuda.h). The driver copies the block.
  std::size_t parameter_bytes = head.parameter_bytes;
  void* block = const_cast<std::byte*>(call.payload().data() + sizeof head);
  void* extra[] = {reinterpret_cast<void*>(std::uintptr_t{1}), block,
                   reinterpret_cast<void*>(std::uintptr_t{2}), &parameter_bytes, nullptr};
  result = call.driver().cuLaunchKernelEx(&launch.config, launch.kernel.value, nullptr,
                                          parameter_bytes == 0 ? nullptr : extra);
  return CallOutcome::done(result);
}

// cuOccupancyMaxActiveClusters, cuOccupancyMaxPotentialClusterSize.
CallOutcome run_cluster_question(Call& call) {
  DriverLaunch launch;
  if (call.payload().size() < sizeof launch.head) return CallOutcome::done(kErrorInvalidValue);
  std::memcpy(&launch.head, call.payload().data(), sizeof launch.head);
  if (launch.head.attribute_count > protocol::kLaunchAttributesMax ||
      call.payload().size() !=
          sizeof launch.head + launch.head.attribute_count * sizeof(LaunchAttribute)) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  int result = launch.read(call, sizeof launch.head);
  if (result != 0) return CallOutcome::done(result);
  const CudaDriver& driver = HandlerState::of(call).driver();
  const bool active =
      call.header().opcode == driver_abi::find_row("cuOccupancyMaxActiveClusters")->opcode;
  const auto* config = reinterpret_cast<const CUlaunchConfig*>(&launch.config);
  auto* function = static_cast<CUfunction>(launch.kernel.value);
  int answer = 0;
  result =
      active ? GPURUN_DRIVER(driver, cuOccupancyMaxActiveClusters, &answer, function, config)
             : GPURUN_DRIVER(driver, cuOccupancyMaxPotentialClusterSize, &answer, function, config);
  if (result == 0) call.set_reply(bytes_of(answer));
  return CallOutcome::done(result);
}
static_assert(sizeof(CUlaunchConfig) == sizeof(DriverLaunchConfig));

}  // namespace

// The driver is asked at the first launch, because it needs a context for that. A kernel may get
// its name without one.
int check_layout(const Call& call, const LaunchPayload& launch, const DriverKernel& kernel) {
  if (launch.layout_hash == 0) return 0;  // The program's own block, which the driver checks.
  HandlerState& state = HandlerState::of(call);
  std::optional<KernelLayout> layout = state.modules().layout(launch.function);
  if (!layout) {
    layout = layout_of(state.driver(), kernel);
    if (layout) state.modules().set_layout(launch.function, *layout);
  }
  const bool same =
      layout && layout->hash == launch.layout_hash && layout->block_bytes == launch.parameter_bytes;
  return same ? 0 : kErrorInvalidValue;
}

void add_launch_handlers(Handlers& handlers) {
  handlers.launch = &run_launch;
  // A launch comes only as its own form.
  for (const char* symbol : {"cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel"}) {
    set_handler(handlers, symbol, [](Call&) { return CallOutcome::done(kErrorInvalidValue); });
  }
  set_handler(handlers, "cuOccupancyMaxActiveClusters", &run_cluster_question);
  set_handler(handlers, "cuOccupancyMaxPotentialClusterSize", &run_cluster_question);
}

}  // namespace gpurun::server
