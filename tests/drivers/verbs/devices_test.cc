// Devices of the verbs double: what the settings give them, profiles, and wrong settings.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tests/drivers/verbs/test_endpoint.h"

namespace gpurun::verbs_double {
namespace {

const TestLibrary& library() { return TestLibrary::get(); }

class Opened {
 public:
  explicit Opened(int index = 0) {
    ibv_device** list = library().get_device_list(nullptr);
    context = library().open_device(list[index]);
    library().free_device_list(list);
  }
  ~Opened() { library().close_device(context); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ibv_port_attr port(std::uint8_t number) const {
    ibv_port_attr attr{};
    verbs_context* extended = verbs_get_ctx_op(context, query_port);
    EXPECT_EQ(extended->query_port(context, number, &attr, sizeof(attr)), 0);
    return attr;
  }
  ibv_gid_entry gid(std::uint32_t index) const {
    ibv_gid_entry entry{};
    EXPECT_EQ(library().query_gid_ex(context, 1, index, &entry, 0, sizeof(entry)), 0);
    return entry;
  }
  ibv_context* context = nullptr;
};

std::string text_of(const ibv_gid_entry& entry) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, entry.gid.raw, text, sizeof(text));
  return text;
}

TEST(VerbsDevices, HaveTheNamesAndNumbersOfTheSettings) {
  const Settings settings(
      "mlx5_0 ports=2 mtu=4096; ib1 link=infiniband lid=40 gids=ib/fe80::7 sge=9");
  int number = 0;
  ibv_device** list = library().get_device_list(&number);
  ASSERT_EQ(number, 2);
  EXPECT_STREQ(library().get_device_name(list[0]), "mlx5_0");
  EXPECT_STREQ(library().get_device_name(list[1]), "ib1");
  EXPECT_NE(library().get_device_guid(list[0]), library().get_device_guid(list[1]));
  library().free_device_list(list);

  const Opened ethernet(0);
  EXPECT_EQ(ethernet.port(2).link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(ethernet.port(1).active_mtu, IBV_MTU_4096);
  EXPECT_EQ(ethernet.port(1).state, IBV_PORT_ACTIVE);
  const Opened infiniband(1);
  EXPECT_EQ(infiniband.port(1).link_layer, IBV_LINK_LAYER_INFINIBAND);
  EXPECT_EQ(infiniband.port(1).lid, 40);
  EXPECT_EQ(text_of(infiniband.gid(0)), "fe80::7");
  ibv_device_attr attr{};
  ASSERT_EQ(library().query_device(infiniband.context, &attr), 0);
  EXPECT_EQ(attr.max_sge, 9);
  __be16 pkey = 0;
  EXPECT_EQ(library().query_pkey(infiniband.context, 1, 0, &pkey), 0);
  EXPECT_EQ(ntohs(pkey), 0xffff);
}

TEST(VerbsDevices, DefaultGidsMapTheLoopbackAddresses) {
  const Settings settings;
  const Opened device;
  EXPECT_EQ(text_of(device.gid(3)), "::ffff:127.0.0.1");
  EXPECT_EQ(device.gid(3).gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(device.gid(2).gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V1));
  EXPECT_EQ(text_of(device.gid(5)), "::1");
  EXPECT_EQ(device.port(1).gid_tbl_len, 6);
  ibv_gid_entry entry{};
  EXPECT_NE(library().query_gid_ex(device.context, 1, 6, &entry, 0, sizeof(entry)), 0);
}

TEST(VerbsDevices, ExtendedQueryReportsOnDemandPaging) {
  for (const bool odp : {false, true}) {
    const Settings settings(odp ? "rdma0 odp=1" : "rdma0");
    const Opened device;
    ibv_device_attr_ex attr{};
    verbs_context* extended = verbs_get_ctx_op(device.context, query_device_ex);
    ASSERT_EQ(extended->query_device_ex(device.context, nullptr, &attr, sizeof(attr)), 0);
    EXPECT_EQ(attr.odp_caps.general_caps != 0, odp);
    EXPECT_EQ(attr.orig_attr.phys_port_cnt, 1);
  }
}

TEST(VerbsDevices, MayBeAbsent) {
  const Settings settings("");
  int number = 7;
  ibv_device** list = library().get_device_list(&number);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(list[0], nullptr);
  library().free_device_list(list);
}

// The memory of a device, which the process itself need not map.
TEST(VerbsDevices, ReadsIntoDmaBufFillItsFileFromThePositionOn) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  connect(a, b);
  const int file = memfd_create("dma-buf", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 3 * 4096), 0);
  ASSERT_EQ(lseek(file, 4096, SEEK_SET), 4096);
  constexpr std::uint64_t kFirst = 0x700000000000;
  ibv_mr* region = library().reg_dmabuf_mr(a.pd, 0, 8192, kFirst, file, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(region, nullptr);
  b.memory[5] = 9;
  ibv_sge into = {kFirst + 4096 + 7, 1, region->lkey};
  ibv_send_wr read{};
  read.opcode = IBV_WR_RDMA_READ;
  read.send_flags = IBV_SEND_SIGNALED;
  read.sg_list = &into;
  read.num_sge = 1;
  const Numbers peer = b.numbers();
  read.wr.rdma.remote_addr = peer.address + 5;
  read.wr.rdma.rkey = peer.key;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a.qp, &read, &bad), 0);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  unsigned char got = 0;
  ASSERT_EQ(pread(file, &got, 1, 8192 + 7), 1);
  EXPECT_EQ(got, 9);
  EXPECT_EQ(library().dereg_mr(region), 0);
  close(file);
}

TEST(VerbsDevices, DmaBufsAreRefusedAsSettingsSay) {
  {
    const Settings settings("rdma0 dmabuf=0");
    Endpoint a;
    EXPECT_EQ(library().reg_dmabuf_mr(a.pd, 0, 4096, 0, 0, 0), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  const Settings settings("rdma0", "dmabuf_fails error=EFAULT");
  Endpoint a;
  EXPECT_EQ(library().reg_dmabuf_mr(a.pd, 0, 4096, 0, 0, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST(VerbsDevices, RegionsMayHaveAnotherFirstAddress) {
  const Settings settings;
  Endpoint a;
  Endpoint b;
  connect(a, b);
  constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  ibv_mr* region = library().reg_mr_iova2(b.pd, b.memory.data(), 16, 0x1000, kAccess);
  ASSERT_NE(region, nullptr);
  b.memory[15] = 6;
  Numbers peer = b.numbers();
  peer.key = region->rkey;
  peer.address = 0x1000;
  ASSERT_EQ(a.read(1, 0, 1, peer, 15), 0);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.memory[0], 6);
  library().dereg_mr(region);
}

TEST(VerbsProfiles, PvrdmaDeliversAWriteWithImmediateAsPlainReceive) {
  const Settings settings("vmw0 profile=pvrdma");
  EndpointOptions options;
  options.gid_index = 1;  // 127.0.0.1, RoCE v1.
  Endpoint a(options);
  Endpoint b(options);
  connect(a, b);
  ASSERT_EQ(b.receive(1, 0, 0), 0);
  ASSERT_EQ(a.write(2, 0, 5, b.numbers(), 0, IBV_SEND_SIGNALED, 77), 0);
  const ibv_wc wc = b.next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_EQ(wc.wc_flags, 0U);
  EXPECT_EQ(wc.imm_data, 0U);
}

TEST(VerbsProfiles, PvrdmaHasTheLimitsOfTheDevice) {
  const Settings settings("vmw0 profile=pvrdma");
  const Opened device;
  ibv_device_attr attr{};
  ASSERT_EQ(library().query_device(device.context, &attr), 0);
  EXPECT_EQ(attr.max_sge, 4);
  EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_NONE);
  for (int i = 0; i < device.port(1).gid_tbl_len; ++i) {
    EXPECT_EQ(device.gid(static_cast<std::uint32_t>(i)).gid_type,
              static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V1));
  }
  EndpointOptions options;
  options.gid_index = 1;
  Endpoint end(options);
  ibv_qp_init_attr inlined{};
  inlined.send_cq = inlined.recv_cq = end.cq;
  inlined.qp_type = IBV_QPT_RC;
  inlined.cap.max_inline_data = 1;
  EXPECT_EQ(library().create_qp(end.pd, &inlined), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(VerbsProfiles, SendOnlyRefusesRdmaAtThePost) {
  const Settings settings("usnic0 profile=send_only");
  Endpoint a;
  Endpoint b;
  connect(a, b);
  EXPECT_EQ(a.write(1, 0, 1, b.numbers(), 0), EINVAL);
  EXPECT_EQ(a.write(1, 0, 1, b.numbers(), 0, 0, 5), EINVAL);
  EXPECT_EQ(a.read(1, 0, 1, b.numbers(), 0), EINVAL);
  ASSERT_EQ(b.receive(1, 0, 1), 0);
  ASSERT_EQ(a.send(2, 0, 1), 0);
  EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
}

TEST(VerbsSettings, WrongOnesAreRefusedWithAReason) {
  const std::pair<const char*, const char*> wrong[] = {{"rdma0 sge=0", ""},
                                                       {"rdma0 sge=x", ""},
                                                       {"rdma0 mtu=1000", ""},
                                                       {"rdma0 colour=red", ""},
                                                       {"rdma0 gids=v3/::1", ""},
                                                       {"rdma0 gids=v1/nowhere", ""},
                                                       {"rdma0; rdma0", ""},
                                                       {"rdma0 profile=best", ""},
                                                       {"rdma0 sge=4 sge=4", ""},
                                                       {"rdma0", "explodes"},
                                                       {"rdma0", "post_fails"},
                                                       {"rdma0", "post_fails at=0"},
                                                       {"rdma0", "breaks_qp"},
                                                       {"rdma0", "delays ms=3"},
                                                       {"rdma0", "open_fails error=EODD"},
                                                       {"rdma0", "completes_with at=1 status=99"}};
  for (const auto& [devices, faults] : wrong) {
    const Settings settings(devices, faults);
    testing::internal::CaptureStderr();
    errno = 0;
    EXPECT_EQ(library().get_device_list(nullptr), nullptr) << devices << " " << faults;
    EXPECT_EQ(errno, EINVAL);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("verbs double: wrong setting `"),
              std::string::npos);
  }
}

TEST(VerbsStrings, NameStatusesEventsAndStates) {
  EXPECT_STREQ(library().wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(library().wc_status_str(IBV_WC_GENERAL_ERR), "general error");
  EXPECT_STREQ(library().wc_status_str(static_cast<ibv_wc_status>(30)), "unknown");
  EXPECT_STREQ(library().event_type_str(IBV_EVENT_PORT_ERR), "port error");
  EXPECT_STREQ(library().port_state_str(IBV_PORT_ACTIVE), "PORT_ACTIVE");
  EXPECT_STREQ(library().node_type_str(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_EQ(library().fork_init(), 0);
  EXPECT_EQ(library().is_fork_initialized(), IBV_FORK_UNNEEDED);
}

}  // namespace
}  // namespace gpurun::verbs_double
