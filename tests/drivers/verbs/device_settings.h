// Device settings: what a device of the verbs double has and can do (verbs_double.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpurun::verbs_double {

struct Gid {
  union ibv_gid gid {};
  ibv_gid_type type = IBV_GID_TYPE_IB;
};

struct DeviceSettings {
  std::string name;
  std::uint8_t link = IBV_LINK_LAYER_ETHERNET;
  std::uint8_t ports = 1;
  ibv_mtu mtu = IBV_MTU_1024;
  std::uint16_t lid = 0;  // Of the first port. Each later port has the next one.
  std::vector<Gid> gids;
  std::uint32_t inline_max = 512;  // Bytes.
  std::uint32_t sge_max = 32;
  std::uint32_t message_max = 8U << 20;  // Bytes.
  std::uint32_t wr_max = 8192;
  std::uint32_t cqe_max = 65536;
  std::uint32_t reads_max = 16;  // Outstanding RDMA READs of a QP.
  bool atomics = false;          // The reported capability only.
  bool odp = false;
  bool needs_global = false;     // InfiniBand: an address needs a GID.
  bool dma_buf = true;           // False: ibv_reg_dmabuf_mr fails with EOPNOTSUPP.
  bool rdma = true;              // False: RDMA requests fail at the post.
  bool plain_immediate = false;  // WRITE WITH IMMEDIATE arrives without its immediate data.
};

// Throws WrongSetting.
std::vector<DeviceSettings> parse_devices(std::string_view text);

}  // namespace gpurun::verbs_double
