// What programs ask of devices, ports and GIDs.
#include "tests/drivers/verbs/queries.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "tests/drivers/verbs/completions.h"
#include "tests/drivers/verbs/queue_pair.h"

namespace gpurun::verbs_double {
namespace {

constexpr int kManyObjects = 65536;
constexpr std::uint16_t kPkey = 0xffff;  // The default partition, full member.
constexpr std::uint8_t kWidth4X = 2;
constexpr std::uint8_t kSpeedEdr = 32;
constexpr std::uint8_t kPhysicalUp = 5;
constexpr std::uint8_t kPhysicalDisabled = 3;

ibv_device_attr describe(const Device& device) {
  const DeviceSettings& settings = device.settings;
  ibv_device_attr attr{};
  std::snprintf(attr.fw_ver, sizeof(attr.fw_ver), "double");
  attr.node_guid = attr.sys_image_guid = htobe64(device.guid);
  attr.max_mr_size = ~0ULL;
  attr.page_size_cap = 4096;
  attr.max_qp = attr.max_cq = attr.max_mr = attr.max_pd = kManyObjects;
  attr.max_qp_wr = static_cast<int>(settings.wr_max);
  attr.max_sge = attr.max_sge_rd = static_cast<int>(settings.sge_max);
  attr.max_cqe = static_cast<int>(settings.cqe_max);
  attr.max_qp_rd_atom = attr.max_qp_init_rd_atom = static_cast<int>(settings.reads_max);
  attr.max_res_rd_atom = kManyObjects;
  attr.atomic_cap = settings.atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  attr.max_pkeys = 1;
  attr.local_ca_ack_delay = 15;
  attr.phys_port_cnt = settings.ports;
  return attr;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* out, std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < offsetof(ibv_device_attr_ex, comp_mask) + sizeof(out->comp_mask)) return EINVAL;
  const Device& device = device_of(context);
  ibv_device_attr_ex attr{};
  attr.orig_attr = describe(device);
  if (device.settings.odp) {
    attr.odp_caps.general_caps = IBV_ODP_SUPPORT;
    attr.odp_caps.per_transport_caps.rc_odp_caps =
        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  }
  attr.phys_port_cnt_ex = device.settings.ports;
  std::memset(out, 0, size);
  std::memcpy(out, &attr, std::min(size, sizeof(attr)));
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* out, std::size_t size) {
  const Device& device = device_of(context);
  const DeviceSettings& settings = device.settings;
  if (port < 1 || port > settings.ports) return EINVAL;
  const Lock lock(nic().mutex);
  const bool down = device.port_down[port - 1U];
  ibv_port_attr attr{};
  attr.state = down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attr.max_mtu = attr.active_mtu = settings.mtu;
  attr.gid_tbl_len = static_cast<int>(settings.gids.size());
  attr.max_msg_sz = settings.message_max;
  attr.pkey_tbl_len = 1;
  if (settings.lid != 0) attr.lid = static_cast<std::uint16_t>(settings.lid + port - 1);
  attr.max_vl_num = 1;
  attr.active_width = kWidth4X;
  attr.active_speed = kSpeedEdr;
  attr.phys_state = down ? kPhysicalDisabled : kPhysicalUp;
  attr.link_layer = settings.link;
  if (settings.link == IBV_LINK_LAYER_ETHERNET || settings.needs_global) {
    attr.flags = IBV_QPF_GRH_REQUIRED;
  }
  std::memset(out, 0, size);
  std::memcpy(out, &attr, std::min(size, sizeof(attr)));
  return 0;
}

// The GID at this place, or nullptr with errno. The ports of a device have the same GIDs.
const Gid* find_gid(ibv_context* context, std::uint32_t port, std::uint32_t index) {
  const Device& device = device_of(context);
  const Gid* gid = port < 1 || port > device.settings.ports ? nullptr : gid_of(device, index);
  if (gid == nullptr) errno = EINVAL;
  return gid;
}

ibv_gid_entry entry_of(const Gid& gid, std::uint32_t port, std::uint32_t index) {
  ibv_gid_entry entry{};
  entry.gid = gid.gid;
  entry.gid_index = index;
  entry.port_num = port;
  entry.gid_type = gid.type;
  entry.ndev_ifindex = gid.type == IBV_GID_TYPE_IB ? 0 : if_nametoindex("lo");
  return entry;
}

}  // namespace

void fill_operations(Context& context) {
  context.sz = sizeof(verbs_context);
  context.query_port = query_port;
  context.query_device_ex = query_device_ex;
  ibv_context& visible = context.context;
  visible.abi_compat = __VERBS_ABI_IS_EXTENDED;
  visible.ops._compat_query_device = ibv_query_device;
  visible.ops.poll_cq = poll_cq;
  visible.ops.req_notify_cq = request_notify;
  visible.ops.post_send = post_send;
  visible.ops.post_recv = post_receive;
}

}  // namespace gpurun::verbs_double

using namespace gpurun::verbs_double;

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  *attr = describe(device_of(context));
  return 0;
}

// The old structure ends before port_cap_flags2.
#undef ibv_query_port
int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attr) {
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* out) {
  const Gid* gid = find_gid(context, port, static_cast<std::uint32_t>(index));
  if (gid == nullptr) return -1;
  *out = gid->gid;
  return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* out, std::uint32_t flags, std::size_t size) {
  if (flags != 0 || size < sizeof(*out)) return EINVAL;
  const Gid* gid = find_gid(context, port, index);
  if (gid == nullptr) return EINVAL;
  *out = entry_of(*gid, port, index);
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* out, std::size_t most,
                             std::uint32_t flags, std::size_t size) {
  if (flags != 0 || size < sizeof(*out)) return -EINVAL;
  const DeviceSettings& settings = device_of(context).settings;
  if (most < settings.gids.size() * settings.ports) return -EINVAL;
  std::size_t filled = 0;
  for (std::uint32_t port = 1; port <= settings.ports; ++port) {
    for (std::uint32_t index = 0; index < settings.gids.size(); ++index) {
      const ibv_gid_entry entry = entry_of(settings.gids[index], port, index);
      std::memcpy(reinterpret_cast<char*>(out) + size * filled++, &entry, sizeof(entry));
    }
  }
  return static_cast<ssize_t>(filled);
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  if (port < 1 || port > device_of(context).settings.ports || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = htons(kPkey);
  return 0;
}

int ibv_get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
  __be16 only = 0;
  if (ibv_query_pkey(context, port, 0, &only) != 0 || only != pkey) return -1;
  return 0;
}
