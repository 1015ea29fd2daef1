// Parses the devices of the verbs double.
#include "tests/drivers/verbs/device_settings.h"

#include <arpa/inet.h>

#include <cstring>

#include "tests/drivers/verbs/rules_text.h"

namespace gpurun::verbs_double {
namespace {

constexpr std::uint64_t kMessageMax = 1U << 30;

Gid parse_gid(const TextRule& rule, const std::string& text) {
  const auto slash = text.find('/');
  const std::string type = text.substr(0, slash);
  const std::string address = slash == std::string::npos ? "" : text.substr(slash + 1);
  Gid gid;
  if (type == "v1") {
    gid.type = IBV_GID_TYPE_ROCE_V1;
  } else if (type == "v2") {
    gid.type = IBV_GID_TYPE_ROCE_V2;
  } else if (type != "ib") {
    rule.wrong("a GID is v1/ADDRESS, v2/ADDRESS or ib/ADDRESS, not " + text);
  }
  const std::string mapped = address.find(':') == std::string::npos ? "::ffff:" + address : address;
  if (inet_pton(AF_INET6, mapped.c_str(), gid.gid.raw) != 1) {
    rule.wrong(text + " has no IPv4 or IPv6 address");
  }
  return gid;
}

ibv_mtu parse_mtu(const TextRule& rule) {
  const std::uint64_t bytes = rule.number("mtu", 1024, 256, 4096);
  for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; ++mtu) {
    if (bytes == 128U << mtu) return static_cast<ibv_mtu>(mtu);
  }
  rule.wrong("mtu must be 256, 512, 1024, 2048 or 4096");
}

bool choice(const TextRule& rule, const std::string& key, const char* no, const char* yes,
            bool fallback) {
  const std::string value = rule.text(key, fallback ? yes : no);
  if (value != no && value != yes) rule.wrong(key + " must be " + no + " or " + yes);
  return value == yes;
}

DeviceSettings profile_of(const TextRule& rule) {
  DeviceSettings device;
  const std::string profile = rule.text("profile", "full");
  if (profile == "pvrdma") {
    device.inline_max = 0;
    device.sge_max = 4;
    device.plain_immediate = true;
  } else if (profile == "send_only") {
    device.rdma = false;
  } else if (profile != "full") {
    rule.wrong("unknown profile " + profile);
  }
  return device;
}

std::string default_gids(const TextRule& rule, const DeviceSettings& device) {
  if (device.link == IBV_LINK_LAYER_INFINIBAND) return "ib/fe80::2";
  const bool v2 = rule.text("profile", "full") != "pvrdma";
  std::string gids;
  for (const char* address : {"fe80::1", "127.0.0.1", "::1"}) {
    gids += std::string(gids.empty() ? "" : ",") + "v1/" + address;
    if (v2) gids += std::string(",v2/") + address;
  }
  return gids;
}

std::uint32_t number(const TextRule& rule, const char* key, std::uint32_t fallback,
                     std::uint64_t least, std::uint64_t most) {
  return static_cast<std::uint32_t>(rule.number(key, fallback, least, most));
}

DeviceSettings parse_device(const TextRule& rule) {
  rule.only({"profile", "link", "ports", "mtu", "lid", "gids", "inline", "sge", "message", "wr",
             "cqe", "reads", "atomics", "odp", "dmabuf", "grh", "immediate", "rdma"});
  DeviceSettings device = profile_of(rule);
  device.name = rule.word();
  if (device.name.size() >= IBV_SYSFS_NAME_MAX) rule.wrong("the name is too long");
  const bool infiniband = choice(rule, "link", "ethernet", "infiniband", false);
  device.link = infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  device.ports = static_cast<std::uint8_t>(rule.number("ports", 1, 1, 8));
  device.mtu = parse_mtu(rule);
  device.lid = static_cast<std::uint16_t>(rule.number("lid", infiniband ? 1 : 0, 0, 0xbf00));
  for (const std::string& gid : split(rule.text("gids", default_gids(rule, device)), ',')) {
    device.gids.push_back(parse_gid(rule, gid));
  }
  device.inline_max = number(rule, "inline", device.inline_max, 0, 4096);
  device.sge_max = number(rule, "sge", device.sge_max, 1, 256);
  device.message_max = number(rule, "message", device.message_max, 1, kMessageMax);
  device.wr_max = number(rule, "wr", device.wr_max, 1, 65536);
  device.cqe_max = number(rule, "cqe", device.cqe_max, 1, 1U << 22);
  device.reads_max = number(rule, "reads", device.reads_max, 0, 255);
  device.atomics = rule.number("atomics", device.atomics ? 1 : 0, 0, 1) != 0;
  device.needs_global = rule.number("grh", 0, 0, 1) != 0;
  device.odp = rule.number("odp", 0, 0, 1) != 0;
  device.dma_buf = rule.number("dmabuf", 1, 0, 1) != 0;
  device.plain_immediate = choice(rule, "immediate", "with", "plain", device.plain_immediate);
  device.rdma = choice(rule, "rdma", "no", "yes", device.rdma);
  return device;
}

}  // namespace

std::vector<DeviceSettings> parse_devices(std::string_view text) {
  std::vector<DeviceSettings> devices;
  for (const TextRule& rule : parse_rules(text)) {
    for (const DeviceSettings& other : devices) {
      if (other.name == rule.word()) rule.wrong("the name appears twice");
    }
    devices.push_back(parse_device(rule));
  }
  return devices;
}

}  // namespace gpurun::verbs_double
