// The devices of the verbs double: their list, and opening and closing them.
#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/drivers/verbs/completions.h"
#include "tests/drivers/verbs/nic.h"
#include "tests/drivers/verbs/queries.h"
#include "tests/drivers/verbs/queue_pair.h"
#include "tests/drivers/verbs/rules_text.h"
#include "tests/drivers/verbs/verbs_double.h"

namespace gpurun::verbs_double {
namespace {

std::string setting(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

std::unique_ptr<Device> make_device(const DeviceSettings& settings, std::size_t index) {
  auto device = std::make_unique<Device>();
  ibv_device& visible = device->visible;
  visible.node_type = IBV_NODE_CA;
  visible.transport_type = IBV_TRANSPORT_IB;
  std::snprintf(visible.name, sizeof(visible.name), "%s", settings.name.c_str());
  std::snprintf(visible.dev_name, sizeof(visible.dev_name), "uverbs%zu", index);
  std::snprintf(visible.dev_path, sizeof(visible.dev_path), "/sys/class/infiniband_verbs/uverbs%zu",
                index);
  std::snprintf(visible.ibdev_path, sizeof(visible.ibdev_path), "/sys/class/infiniband/%.64s",
                settings.name.c_str());
  device->settings = settings;
  device->guid = 0x0002'c9ff'fe00'0000 + index;
  device->port_down.assign(settings.ports, false);
  return device;
}

// Throws WrongSetting. While a device is open the settings stay.
void read_settings() {
  Nic& all = nic();
  if (!all.contexts.empty()) return;
  const std::string text = setting("VERBS_DOUBLE_DEVICES", "rdma0");
  const std::vector<DeviceSettings> devices = parse_devices(text);
  Faults faults;
  faults.add(setting("VERBS_DOUBLE_FAULTS", ""));
  const TextRule percent("VERBS_DOUBLE_TIMEOUT_PERCENT",
                         {{"value", setting("VERBS_DOUBLE_TIMEOUT_PERCENT", "100")}});
  all.timeout_percent = percent.number("value", 100, 0, 1'000'000);
  all.fabric = setting("VERBS_DOUBLE_FABRIC", "default");
  all.faults = std::move(faults);
  if (all.device_text == text && !all.devices.empty()) {
    for (auto& device : all.devices) device->port_down.assign(device->port_down.size(), false);
    return;
  }
  for (auto& device : all.devices) all.old_devices.push_back(std::move(device));
  all.devices.clear();
  all.device_text = text;
  for (const DeviceSettings& one : devices) {
    all.devices.push_back(make_device(one, all.devices.size()));
  }
}

Device& device_at(ibv_device* visible) { return *reinterpret_cast<Device*>(visible); }

}  // namespace
}  // namespace gpurun::verbs_double

using namespace gpurun::verbs_double;

#undef ibv_get_device_list
ibv_device** ibv_get_device_list(int* number) {
  const Lock lock(nic().mutex);
  try {
    read_settings();
  } catch (const WrongSetting& wrong) {
    std::fprintf(stderr, "verbs double: wrong setting %s\n", wrong.what());
    errno = EINVAL;
    return nullptr;
  }
  const auto& devices = nic().devices;
  auto** list = static_cast<ibv_device**>(std::calloc(devices.size() + 1, sizeof(ibv_device*)));
  if (list == nullptr) return nullptr;
  for (std::size_t i = 0; i < devices.size(); ++i) list[i] = &devices[i]->visible;
  if (number != nullptr) *number = static_cast<int>(devices.size());
  return list;
}

void ibv_free_device_list(ibv_device** list) { std::free(list); }

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

int ibv_get_device_index(ibv_device* device) {
  return static_cast<int>(device_at(device).guid & 0xffff);
}

__be64 ibv_get_device_guid(ibv_device* device) { return htobe64(device_at(device).guid); }

ibv_context* ibv_open_device(ibv_device* visible) {
  Lock lock(nic().mutex);
  if (const int error = nic().faults.open_error()) {
    errno = error;
    return nullptr;
  }
  // In place of /dev/infiniband/uverbs0: a character device, which other descriptors may have, too.
  const int file = open("/dev/zero", O_RDWR | O_CLOEXEC);
  int ends[2];
  if (file < 0 || !start_nic() || pipe2(ends, O_CLOEXEC) != 0) {
    if (file >= 0) close(file);
    return nullptr;
  }
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  auto* opened = new Context{};
  opened->owner = &device_at(visible);
  opened->async_writer = set_aside(ends[1]);
  fill_operations(*opened);
  ibv_context& context = opened->context;
  context.device = visible;
  context.cmd_fd = file;
  context.async_fd = ends[0];
  context.num_comp_vectors = 1;
  pthread_mutex_init(&context.mutex, nullptr);
  nic().contexts.push_back(opened);
  return &context;
}

int ibv_close_device(ibv_context* context) {
  auto* opened = static_cast<Context*>(verbs_get_ctx(context));
  Lock lock(nic().mutex);
  // The kernel ends what the program has left.
  for (const auto& [number, qp] : nic().qps) {
    if (qp->owner != opened) continue;
    disconnect(*qp);
    unbind_qp(std::exchange(qp->listener, -1), nic().fabric, number);
  }
  std::erase_if(nic().qps, [&](const auto& entry) { return entry.second->owner == opened; });
  std::erase(nic().contexts, opened);
  if (nic().contexts.empty()) stop_nic(lock);
  if (context->cmd_fd != -1) close(context->cmd_fd);
  if (context->async_fd != -1) close(context->async_fd);
  close(opened->async_writer);
  pthread_mutex_destroy(&context->mutex);
  delete opened;
  return 0;
}

int verbs_double_inject(const char* text) {
  const Lock lock(nic().mutex);
  try {
    nic().faults.add(text);
  } catch (const WrongSetting& wrong) {
    std::fprintf(stderr, "verbs double: wrong fault %s\n", wrong.what());
    return EINVAL;
  }
  run_triggered(nic().faults.triggered(0, 0), nullptr);
  return 0;
}
