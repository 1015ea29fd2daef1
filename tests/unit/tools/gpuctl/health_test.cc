// gpuctl health: checks on invented machines and invented answers of servers. They protect that
// each fault is found, that it has a remedy, and that a machine without the hardware has no fault.
#include <gtest/gtest.h>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "protocol/control/version.h"
#include "tests/unit/tools/gpuctl/invented_machine.h"
#include "tools/gpuctl/health/fabric_checks.h"
#include "tools/gpuctl/health/health.h"
#include "tools/gpuctl/health/machine_checks.h"
#include "tools/gpuctl/health/server_checks.h"
#include "transport/rdma/fabric.h"

namespace gpurun::tools {
namespace {

constexpr const char* kRoot = "pci0000:3a/0000:3a:00.0";

// The check of that name, which must exist once.
Check find(const Checks& checks, const std::string& name) {
  Check found;
  int count = 0;
  for (const Check& each : checks) {
    if (each.name != name) continue;
    found = each;
    ++count;
  }
  EXPECT_EQ(count, 1) << name;
  return found;
}

Verdict verdict(const Checks& checks, const std::string& name) {
  const Check found = find(checks, name);
  const bool fault = found.verdict == Verdict::kWarning || found.verdict == Verdict::kFailed;
  EXPECT_EQ(fault, !found.fix.empty()) << name << ": " << found.text;
  return found.verdict;
}

Checks fabric(const InventedMachine& machine, const transport::rdma::AllowedPorts& allowed = {}) {
  return fabric_checks(machine.files(), {"/lib/libibverbs.so.1.14", "/lib/librdmacm.so.1.3"},
                       allowed);
}

MachineLimits wide_limits() {
  MachineLimits limits;
  limits.shared_memory_bytes = limits.shared_memory_free = std::uint64_t{8} << 30;
  return limits;
}

TEST(FabricChecks, MachineWithoutHardwareHasNoFault) {
  const InventedMachine machine;
  for (const Check& each : fabric_checks(machine.files(), {}, {{"*"}, {}})) {
    EXPECT_EQ(each.verdict, Verdict::kNotApplicable) << each.name << ": " << each.text;
  }
}

TEST(FabricChecks, HealthyMachineIsOk) {
  InventedMachine machine;
  const std::string nic =
      machine.pci(std::string(kRoot) + "/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0", "0x15b3",
                  "0x1017", "0x020000");
  machine.gpu(std::string(kRoot) + "/0000:3b:00.0/0000:3c:04.0/0000:3e:00.0");
  machine.verbs("mlx5_0", nic, "4: ACTIVE");
  machine.write("/proc/modules", "nvidia_peermem 16384 0 - Live 0x0\nmlx5_ib 1 0 - Live 0x0\n");
  machine.write(nic + "/iommu_group/type", "identity\n");
  const Checks checks = fabric(machine);
  for (const char* name :
       {"verbs-library", "verbs-port", "mtu", "peer-memory", "iommu", "nic-distance"}) {
    EXPECT_EQ(verdict(checks, name), Verdict::kOk) << name;
  }
  const std::string port = find(checks, "verbs-port").text;
  EXPECT_NE(port.find("mlx5_0:1 ACTIVE, Ethernet, 100 Gb/sec (4X EDR), 2 GIDs, RoCE v2"),
            std::string::npos)
      << port;
  EXPECT_NE(port.find("ens3np0 has MTU 9000"), std::string::npos) << port;
  EXPECT_NE(find(checks, "nic-distance").text.find("PIX"), std::string::npos);
  EXPECT_EQ(verdict(checks, "pvrdma-module"), Verdict::kNotApplicable);
  // Without the rights of root the configuration of PCI devices ends after 64 bytes.
  EXPECT_EQ(verdict(checks, "acs-ats"), Verdict::kNotApplicable);
}

TEST(FabricChecks, PortsWithFaultsAreNamed) {
  InventedMachine machine;
  machine.verbs("mlx5_0", "", "1: DOWN");
  const Check down = find(fabric(machine), "verbs-port");
  EXPECT_EQ(down.verdict, Verdict::kWarning);  // The user trusts no fabric.
  EXPECT_NE(down.text.find("mlx5_0:1 DOWN"), std::string::npos);
  EXPECT_FALSE(down.fix.empty());
  machine.verbs("mlx5_0", "", "4: ACTIVE", "Ethernet", 1500);
  EXPECT_NE(find(fabric(machine), "mtu").fix.find("ip link set ens3np0 mtu 9000"),
            std::string::npos);
  for (const char* gid : {"0", "1"}) {
    machine.write(std::string("/sys/class/infiniband/mlx5_0/ports/1/gids/") + gid,
                  "0000:0000:0000:0000:0000:0000:0000:0000\n");
  }
  EXPECT_NE(find(fabric(machine), "verbs-port").text.find("without a GID"), std::string::npos);
  const Checks without = fabric_checks(machine.files(), {}, {});
  EXPECT_NE(find(without, "verbs-library").fix.find("libibverbs1"), std::string::npos);
  // gpurun does not open librdmacm.
  EXPECT_EQ(verdict(fabric_checks(machine.files(), {"/lib/libibverbs.so.1", ""}, {{"*"}, {}}),
                    "verbs-library"),
            Verdict::kOk);
}

TEST(FabricChecks, FaultsOfTheTrustedFabricAreFailures) {
  InventedMachine machine;
  machine.verbs("mlx5_0", "", "1: DOWN");
  for (const char* name : {"*", "mlx5_0", "mlx5_0:1"}) {
    EXPECT_EQ(verdict(fabric(machine, {{name}, {}}), "verbs-port"), Verdict::kFailed) << name;
  }
  EXPECT_EQ(verdict(fabric_checks(machine.files(), {}, {{"*"}, {}}), "verbs-library"),
            Verdict::kFailed);
  const auto worst = [&](const transport::rdma::AllowedPorts& allowed) {
    Verdict found = Verdict::kOk;
    for (const Check& each : fabric(machine, allowed)) {
      if (each.name == "verbs-port") found = std::max(found, each.verdict);
    }
    return found;
  };
  // Another port that the user trusts works.
  machine.verbs("mlx5_1", "", "4: ACTIVE");
  EXPECT_EQ(worst({{"*"}, {}}), Verdict::kWarning);
  EXPECT_EQ(worst({{"mlx5_1:1"}, {}}), Verdict::kWarning);
  EXPECT_EQ(worst({{"mlx5_0"}, {}}), Verdict::kFailed);
  EXPECT_EQ(worst({{"*"}, {"mlx5_0:1"}}), Verdict::kFailed);
}

TEST(FabricChecks, DeviceWithoutDriverIsNamed) {
  InventedMachine machine;
  machine.pci("pci0000:00/0000:00:05.0", "0x15ad", "0x0820", "0x020000");
  EXPECT_EQ(find(fabric(machine), "verbs-port").fix, "modprobe vmw_pvrdma");
}

TEST(FabricChecks, OrderOfPvrdmaModules) {
  InventedMachine machine;
  // The module that started last comes first.
  machine.write("/proc/modules",
                "vmw_pvrdma 1 0 - Live 0x0\nib_uverbs 1 0 - Live 0x0\n"
                "vmxnet3 1 0 - Live 0x0\n");
  EXPECT_EQ(verdict(fabric(machine), "pvrdma-module"), Verdict::kOk);
  machine.write("/proc/modules",
                "vmxnet3 1 0 - Live 0x0\nvmw_pvrdma 1 0 - Live 0x0\n"
                "ib_uverbs 1 0 - Live 0x0\n");
  const Check late = find(fabric(machine), "pvrdma-module");
  EXPECT_EQ(late.verdict, Verdict::kWarning);
  EXPECT_NE(late.text.find("started before vmxnet3"), std::string::npos);
  EXPECT_NE(late.fix.find("softdep vmw_pvrdma pre: vmxnet3"), std::string::npos);
  machine.write("/proc/modules", "vmw_pvrdma 1 0 - Live 0x0\nvmxnet3 1 0 - Live 0x0\n");
  EXPECT_NE(find(fabric(machine), "pvrdma-module").text.find("needs ib_uverbs"), std::string::npos);
}

// Modules that are part of the kernel are not in /proc/modules, and started before all others.
TEST(FabricChecks, PvrdmaModulesMayBePartOfTheKernel) {
  InventedMachine machine;
  machine.write("/proc/modules", "vmw_pvrdma 1 0 - Live 0x0\n");
  machine.write("/proc/sys/kernel/osrelease", "6.1.0-9-amd64\n");
  machine.write("/lib/modules/6.1.0-9-amd64/modules.builtin",
                "kernel/drivers/net/vmxnet3/other_vmxnet3.ko\n");
  EXPECT_NE(find(fabric(machine), "pvrdma-module").text.find("needs vmxnet3"), std::string::npos);
  machine.write("/lib/modules/6.1.0-9-amd64/modules.builtin",
                "kernel/drivers/net/vmxnet3/vmxnet3.ko\n");
  EXPECT_NE(find(fabric(machine), "pvrdma-module").text.find("needs ib_uverbs"), std::string::npos);
  machine.write("/sys/module/ib_uverbs/parameters/x", "");
  EXPECT_EQ(verdict(fabric(machine), "pvrdma-module"), Verdict::kOk);
  machine.write("/proc/modules", "");
  EXPECT_EQ(verdict(fabric(machine), "pvrdma-module"), Verdict::kNotApplicable);
  machine.write("/sys/bus/pci/drivers/vmw_pvrdma/new_id", "");
  EXPECT_NE(find(fabric(machine), "pvrdma-module").text.find("unknown order"), std::string::npos);
}

// The port has what the order is about, whatever /proc/modules shows.
TEST(FabricChecks, PvrdmaPortWithNetworkDeviceIsOk) {
  InventedMachine machine;
  machine.write("/proc/modules", "vmxnet3 1 0 - Live 0x0\nvmw_pvrdma 1 0 - Live 0x0\n");
  const std::string device = machine.pci("pci0000:00/0000:00:05.0", "0x15ad", "0x0820", "0x020000");
  EXPECT_EQ(verdict(fabric(machine), "pvrdma-module"), Verdict::kWarning);
  machine.verbs("vmw_pvrdma0", device, "4: ACTIVE");
  const Check found = find(fabric(machine), "pvrdma-module");
  EXPECT_EQ(found.verdict, Verdict::kOk);
  EXPECT_NE(found.text.find("ens3np0"), std::string::npos);
}

TEST(FabricChecks, GpuPeersAreChecked) {
  InventedMachine machine;
  const std::string gpu = machine.gpu(std::string(kRoot) + "/0000:3b:00.0", 0);
  const std::string nic =
      machine.pci("pci0000:ae/0000:ae:00.0/0000:af:00.0", "0x15b3", "0x1017", "0x020000", 1);
  machine.verbs("mlx5_0", nic, "4: ACTIVE");
  machine.write(gpu + "/iommu_group/type", "DMA-FQ\n");
  machine.write(nic + "/iommu_group/type", "identity\n");
  machine.write("/sys/devices/system/node/node0/distance", "10 21\n");
  const Checks checks = fabric(machine);
  const Check iommu = find(checks, "iommu");
  EXPECT_EQ(iommu.verdict, Verdict::kWarning);
  EXPECT_NE(iommu.text.find("0000:3b:00.0"), std::string::npos);
  EXPECT_EQ(iommu.text.find("0000:af:00.0"), std::string::npos);
  EXPECT_EQ(verdict(checks, "peer-memory"), Verdict::kWarning);
  const Check far = find(checks, "nic-distance");
  EXPECT_EQ(far.verdict, Verdict::kWarning);
  EXPECT_NE(far.text.find("SYS, NUMA distance 21"), std::string::npos) << far.text;
}

// Whether the server's GPUs can be read into, by what, and what would help.
TEST(FabricChecks, PeerMemoryNamesTheWayOfGpuDirect) {
  constexpr const char* kOpen = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.1\n";
  constexpr const char* kClosed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1\n";
  InventedMachine machine;
  machine.verbs("mlx5_0", "", "4: ACTIVE");
  EXPECT_EQ(verdict(fabric(machine), "peer-memory"), Verdict::kNotApplicable) << "without a GPU";
  machine.gpu(std::string(kRoot) + "/0000:3b:00.0/0000:3c:04.0/0000:3e:00.0");
  const auto found = [&](const char* release, const char* driver, const char* modules) {
    machine.write("/proc/sys/kernel/osrelease", release);
    machine.write("/proc/driver/nvidia/version", driver);
    machine.write("/proc/modules", modules);
    return find(fabric(machine), "peer-memory");
  };
  const char* const peer = "nvidia_peermem 16384 0 - Live 0x0\n";
  const Check both = found("6.1.0-13-amd64", kOpen, peer);
  EXPECT_EQ(both.verdict, Verdict::kOk);
  EXPECT_NE(both.text.find("by dma-buf, or else by nvidia_peermem"), std::string::npos)
      << both.text;
  const Check dma_buf = found("5.12.0", kOpen, "");
  EXPECT_EQ(dma_buf.verdict, Verdict::kOk);
  EXPECT_NE(dma_buf.text.find("by dma-buf. No"), std::string::npos) << dma_buf.text;
  const Check module = found("6.1.0", kClosed, peer);
  EXPECT_EQ(module.verdict, Verdict::kOk);
  EXPECT_NE(module.text.find("by nvidia_peermem, and not by dma-buf"), std::string::npos)
      << module.text;
  const Check closed = found("6.1.0", kClosed, "nvidia 1 0 - Live 0x0\n");
  EXPECT_EQ(closed.verdict, Verdict::kWarning);
  EXPECT_NE(closed.text.find("proprietary"), std::string::npos) << closed.text;
  EXPECT_NE(closed.fix.find("modprobe nvidia_peermem"), std::string::npos) << closed.fix;
  EXPECT_NE(closed.fix.find("open kernel modules"), std::string::npos) << closed.fix;
  for (const char* old : {"5.11.22-generic", "4.18.0", "", "x"}) {
    const Check none = found(old, kOpen, "");
    EXPECT_EQ(none.verdict, Verdict::kWarning) << old;
    EXPECT_NE(none.text.find("older than 5.12"), std::string::npos) << none.text;
  }
}

// A configuration space with one extended capability, and `control` behind its header's 6 bytes.
std::string config_space(unsigned capability, unsigned control) {
  std::string space(4096, '\0');
  space[0x100] = static_cast<char>(0x01);  // An unknown one first, which leads to 0x140.
  space[0x102] = static_cast<char>(0x01);
  space[0x103] = static_cast<char>(0x14);
  space[0x140] = static_cast<char>(capability);
  space[0x142] = static_cast<char>(0x01);
  space[0x146] = static_cast<char>(control & 0xff);
  space[0x147] = static_cast<char>(control >> 8);
  return space;
}

TEST(FabricChecks, AcsOfBridgesAndAtsOfDevices) {
  InventedMachine machine;
  const std::string root = machine.pci(kRoot, "0x8086", "0x2030", "0x060400");
  const std::string upper = std::string(kRoot) + "/0000:3b:00.0";
  const std::string bridge = machine.pci(upper + "/0000:3c:00.0", "0x10b5", "0x8747", "0x060400");
  const std::string gpu = machine.gpu(upper + "/0000:3c:00.0/0000:3d:00.0");
  // A GPU alone has no peer.
  EXPECT_EQ(verdict(fabric(machine), "acs-ats"), Verdict::kNotApplicable);
  EXPECT_EQ(verdict(fabric(machine), "iommu"), Verdict::kNotApplicable);
  // A GPU below another bridge of the root complex shares none with it.
  machine.gpu("pci0000:3a/0000:3a:01.0/0000:41:00.0");
  machine.write(root + "/config", config_space(0x0d, 0x1d));
  EXPECT_EQ(verdict(fabric(machine), "acs-ats"), Verdict::kNotApplicable);
  machine.gpu(upper + "/0000:3c:04.0/0000:3e:00.0");
  EXPECT_EQ(verdict(fabric(machine), "iommu"), Verdict::kNotApplicable);  // No group is shown.
  // The bridge above the last common one does not see their traffic.
  machine.write(gpu + "/config", config_space(0x0f, 0));
  EXPECT_EQ(verdict(fabric(machine), "acs-ats"), Verdict::kOk);
  machine.write(bridge + "/config", config_space(0x0d, 0x1d));
  machine.write(gpu + "/config", config_space(0x0f, 0x8000));
  const Check found = find(fabric(machine), "acs-ats");
  EXPECT_EQ(found.verdict, Verdict::kWarning);
  EXPECT_NE(found.text.find("processor: 0000:3c:00.0. ATS is on for 0000:3d:00.0"),
            std::string::npos)
      << found.text;
  machine.write(bridge + "/config", config_space(0x0d, 0x01));
  EXPECT_EQ(verdict(fabric(machine), "acs-ats"), Verdict::kOk);
  // A list of capabilities that leads to itself, or beyond the end.
  for (const char step : {'\x10', '\xff'}) {
    std::string broken(4096, '\0');
    broken[0x100] = '\x01';
    broken[0x103] = step;
    machine.write(bridge + "/config", broken);
    EXPECT_EQ(verdict(fabric(machine), "acs-ats"), Verdict::kOk);
  }
}

TEST(ServerChecks, PathMtuIsThatOfTheDevice) {
  EXPECT_EQ(path_mtu_check("h:1", 1500, "eth0", 1500).verdict, Verdict::kOk);
  EXPECT_EQ(path_mtu_check("h:1", 65535, "lo", 65536).verdict, Verdict::kOk);
  EXPECT_EQ(path_mtu_check("h:1", 0, "eth0", 1500).verdict, Verdict::kNotApplicable);
  EXPECT_EQ(path_mtu_check("h:1", 1500, "", 0).verdict, Verdict::kNotApplicable);
  const Check tunnel = path_mtu_check("h:1", 1420, "eth0", 9000);
  EXPECT_EQ(tunnel.verdict, Verdict::kWarning);
  EXPECT_NE(tunnel.text.find("up to 1420 bytes, and eth0 allows 9000"), std::string::npos);
  EXPECT_NE(tunnel.fix.find("ip link set eth0 mtu 1420"), std::string::npos);
}

TEST(ServerChecks, RdmaHasTheReasonOfASession) {
  SessionFacts facts;
  facts.server = "h:1";
  facts.security.known_servers = "/nonexistent/known_servers";
  facts.allowed = client::all_transports();
  EXPECT_EQ(rdma_check(facts).verdict, Verdict::kNotApplicable);
  facts.fabrics.trusted = {"*"};
  facts.ports.why_none = "mlx5_0:1: it is not active";
  const Check fault = rdma_check(facts);
  if (std::string(transport::rdma::why_not_built()).empty()) {
    EXPECT_EQ(fault.verdict, Verdict::kFailed);
    EXPECT_NE(fault.text.find("h:1 do not use RDMA: mlx5_0:1: it is not active"),
              std::string::npos);
    facts.ports = {{"mlx5_1:1"}, ""};
    EXPECT_EQ(rdma_check(facts).verdict, Verdict::kOk);
    EXPECT_NE(rdma_check(facts).text.find("mlx5_1:1"), std::string::npos);
  }
  facts.same_host = true;
  EXPECT_NE(rdma_check(facts).text.find("shared memory"), std::string::npos);
  facts.allowed = {client::TransportKind::kTcp};
  EXPECT_NE(rdma_check(facts).text.find("GPURUN_TRANSPORTS leaves it out"), std::string::npos);
  EXPECT_EQ(rdma_check(facts).verdict, Verdict::kNotApplicable);
}

TEST(MachineChecks, WideLimitsAreOk) {
  const InventedMachine machine;
  const Checks checks = machine_checks(machine.files(), wide_limits());
  for (const char* name : {"memlock", "descriptors", "file-size", "shared-memory"}) {
    EXPECT_EQ(verdict(checks, name), Verdict::kOk) << name;
  }
  EXPECT_EQ(verdict(checks, "container"), Verdict::kNotApplicable);
  EXPECT_EQ(verdict(checks, "driver"), Verdict::kNotApplicable);
}

TEST(MachineChecks, NarrowLimitsHaveRemedies) {
  InventedMachine machine;
  MachineLimits limits = wide_limits();
  limits.locked_bytes = 64 << 10;
  EXPECT_EQ(verdict(machine_checks(machine.files(), limits), "memlock"), Verdict::kOk);
  machine.verbs("mlx5_0", "", "4: ACTIVE");
  limits.descriptors_soft = limits.descriptors_hard = 256;
  limits.file_bytes_hard = 64 << 10;
  limits.shared_memory_bytes = std::uint64_t{64} << 20;
  const Checks checks = machine_checks(machine.files(), limits);
  EXPECT_EQ(verdict(checks, "memlock"), Verdict::kWarning);
  EXPECT_EQ(verdict(checks, "descriptors"), Verdict::kWarning);
  EXPECT_EQ(verdict(checks, "file-size"), Verdict::kFailed);
  EXPECT_EQ(verdict(checks, "shared-memory"), Verdict::kWarning);
  limits.shared_memory_bytes = 0;
  EXPECT_NE(find(machine_checks(machine.files(), limits), "shared-memory").text.find("missing"),
            std::string::npos);
  limits.no_memory_file = "Function not implemented";
  EXPECT_EQ(verdict(machine_checks(machine.files(), limits), "shared-memory"), Verdict::kFailed);
}

TEST(MachineChecks, ContainerNamesItsDevices) {
  InventedMachine machine;
  machine.write("/.dockerenv", "");
  EXPECT_EQ(verdict(machine_checks(machine.files(), wide_limits()), "container"), Verdict::kOk);
  machine.verbs("mlx5_0", "", "4: ACTIVE");
  const Check hidden = find(machine_checks(machine.files(), wide_limits()), "container");
  EXPECT_EQ(hidden.verdict, Verdict::kWarning);
  EXPECT_NE(hidden.fix.find("--device /dev/infiniband"), std::string::npos);
  machine.write("/dev/infiniband/uverbs0", "");
  machine.write("/proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  "
                "580.65.06  Sun Jul 27\n");
  EXPECT_NE(
      find(machine_checks(machine.files(), wide_limits()), "container").fix.find("--gpus all"),
      std::string::npos);
  machine.write("/dev/nvidia0", "");
  machine.write("/dev/nvidiactl", "");
  const Checks whole = machine_checks(machine.files(), wide_limits());
  EXPECT_EQ(find(whole, "container").text,
            "in a container (docker), with /dev/nvidia0, /dev/nvidiactl, /dev/infiniband/uverbs0");
  EXPECT_EQ(find(whole, "driver").text, "NVIDIA's driver 580.65.06");
  EXPECT_EQ(container_kind(machine.files(), "lxc"), "lxc");
  machine.write("/proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n");
  const Check old = find(machine_checks(machine.files(), wide_limits()), "driver");
  EXPECT_EQ(old.verdict, Verdict::kWarning);
  EXPECT_NE(old.fix.find("driver 550"), std::string::npos);
}

TEST(MachineChecks, GpuWithoutDriverIsNamed) {
  InventedMachine machine;
  const std::string gpu = machine.gpu(std::string(kRoot) + "/0000:3b:00.0");
  machine.link(gpu + "/driver", "/sys/bus/pci/drivers/nouveau");
  const Check found = find(machine_checks(machine.files(), wide_limits()), "driver");
  EXPECT_EQ(found.verdict, Verdict::kWarning);
  EXPECT_NE(found.text.find("0000:3b:00.0"), std::string::npos);
  EXPECT_NE(found.fix.find("nouveau"), std::string::npos);
}

protocol::Listing listing_with(std::int64_t clock) {
  protocol::Listing listing;
  listing.release = protocol::kRelease;
  listing.confinement = "user network";
  protocol::ListedGpu gpu;
  gpu.name = "Card";
  listing.gpus = {gpu};
  listing.now = clock;
  return listing;
}

TEST(ServerChecks, ClockIsThatOfTheListing) {
  // 0 is that of an older server. No clock has the others.
  for (const std::int64_t none : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(verdict(listing_checks("h:1", listing_with(none), 5000), "clock"),
              Verdict::kNotApplicable);
  }
  EXPECT_EQ(verdict(listing_checks("h:1", listing_with(4990), 5000), "clock"), Verdict::kOk);
  const Check late = find(listing_checks("h:1", listing_with(4100), 5000), "clock");
  EXPECT_EQ(late.verdict, Verdict::kWarning);
  EXPECT_NE(late.text.find("900 s behind"), std::string::npos) << late.text;
}

TEST(ServerChecks, ListingShowsReleaseGpusAndConfinement) {
  protocol::Listing listing = listing_with(0);
  Checks checks = listing_checks("h:1", listing, 5000);
  EXPECT_EQ(verdict(checks, "versions"), Verdict::kOk);
  EXPECT_EQ(verdict(checks, "gpus"), Verdict::kOk);
  EXPECT_EQ(verdict(checks, "confinement"), Verdict::kOk);
  listing.release = "0.0.1\x1b[2J";
  listing.gpus[0].holder = "10.0.0.2:1";
  listing.confinement = "";
  checks = listing_checks("h:1", listing, 5000);
  EXPECT_EQ(verdict(checks, "versions"), Verdict::kWarning);
  EXPECT_EQ(verdict(checks, "gpus"), Verdict::kWarning);
  EXPECT_EQ(verdict(checks, "confinement"), Verdict::kWarning);
  EXPECT_EQ(health_text(checks).find('\x1b'), std::string::npos);
  listing.gpus.clear();
  EXPECT_EQ(verdict(listing_checks("h:1", listing, 5000), "gpus"), Verdict::kFailed);
}

TEST(ServerChecks, KeyIsTheOneThatTheServerShowed) {
  using client::KeyRule;
  client::ServerKey key;
  key.shown.fill(0x5a);
  const std::string shown = transport::tls::to_string(key.shown);
  client::LinkSecurity security;
  security.authorities_file = "/ca.pem";
  const auto check = [&](KeyRule rule) {
    key.rule = rule;
    const Check found = tls_check("h:1", key, false, security);
    EXPECT_NE(found.text.find(shown), std::string::npos) << found.text;
    return found;
  };
  const std::vector<std::pair<KeyRule, const char*>> known = {
      {KeyRule::kPinned, "gpurun login pinned"},
      {KeyRule::kAuthorities, "/ca.pem"},
      {KeyRule::kFingerprint, "the token's fingerprint"},
      {KeyRule::kAuthoritiesFingerprint, "/ca.pem"}};
  for (const auto& [rule, part] : known) {
    const Check found = check(rule);
    EXPECT_EQ(found.verdict, Verdict::kOk);
    EXPECT_NE(found.text.find(part), std::string::npos) << found.text;
    EXPECT_EQ(found.text.find("login pinned") != std::string::npos, rule == KeyRule::kPinned);
  }
  security.fingerprint = key.shown;
  EXPECT_NE(check(KeyRule::kFingerprint).text.find("--server-fingerprint"), std::string::npos);
  EXPECT_EQ(check(KeyRule::kMetBefore).verdict, Verdict::kWarning);
  EXPECT_EQ(check(KeyRule::kMetNow).verdict, Verdict::kWarning);
}

TEST(ServerChecks, PlaintextBeyondThisMachineIsAWarning) {
  EXPECT_EQ(tls_check("h:1", {}, true, {}).verdict, Verdict::kNotApplicable);
  const Check open = tls_check("h:1", {}, false, {});
  EXPECT_EQ(open.verdict, Verdict::kWarning);
  EXPECT_NE(open.fix.find("drop --insecure-plaintext"), std::string::npos);
}

TEST(ServerChecks, MessagesHaveTheirRemedy) {
  const struct {
    Code code;
    const char *message, *check, *fix;
  } kAll[] = {
      {Code::kUnavailable, "no server at a:1: cannot find host a", "name", "name service"},
      {Code::kUnavailable, "no server at a:1: Connection refused", "port", "gpurund --listen"},
      {Code::kDeadline, "server a:1 does not answer in time; is it", "step", "firewalls"},
      {Code::kPeerGone, "server a:1 hung up: end of stream", "step", "Bitfusion"},
      {Code::kProtocol, "server a:1: a frame of 9 bytes", "step", "Bitfusion"},
      {Code::kProtocol, "server a:1: the server does not speak TLS", "tls", "Bitfusion"},
      {Code::kRefused, "server a:1: this server speaks TLS only; use --tls", "tls", "add --tls"},
      {Code::kRefused, "server a:1: this server speaks TLS beyond its machine; without it", "tls",
       "drop --insecure-plaintext"},
      {Code::kRefused, "the server's certificate is not trusted: unknown", "tls", "--tls-ca"},
      {Code::kRefused, "the server a shows another key than it did before", "tls", "operator"},
      {Code::kRefused, "server a wants a token, and none was found", "token", "gpurun login"},
      {Code::kRefused, "server a:1: the token has been revoked", "token", "gpurun login"},
      {Code::kRefused, "/t: others may read this token; chmod 600 /t", "token", "chmod 600"},
      {Code::kRefused, "the server speaks protocol 2", "versions", "one release"},
      {Code::kRefused, "something new", "step", "log of gpurund"},
  };
  for (const auto& each : kAll) {
    const Remedy remedy = remedy_of(Status(each.code, each.message), "step");
    EXPECT_EQ(remedy.check, each.check) << each.message;
    EXPECT_NE(remedy.fix.find(each.fix), std::string::npos) << each.message << ": " << remedy.fix;
  }
}

TEST(HealthOutput, BothFormsHaveEveryCheck) {
  const std::string token = "gpurun1_0123456789ab_" + std::string(64, '5');
  const Checks checks = {ok("port", "fine"), warning("mtu", "small", "larger"),
                         failed("token", "wrong " + token, "ask"), not_applicable("iommu", "none")};
  const std::string text = health_text(checks);
  EXPECT_NE(text.find("ok       port           fine\n"), std::string::npos) << text;
  EXPECT_NE(text.find("         fix: larger (docs/network.md#mtu)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("1 ok, 1 warning, 1 failed, 1 not applicable\n"), std::string::npos) << text;
  const auto parsed = nlohmann::json::parse(health_json(checks));
  EXPECT_EQ(parsed["failed"], 1);
  EXPECT_EQ(parsed["checks"][1]["section"], "docs/network.md#mtu");
  EXPECT_TRUE(parsed["checks"][0]["fix"].is_null());
  for (const std::string& each : {text, health_json(checks)}) {
    EXPECT_EQ(each.find(std::string(64, '5')), std::string::npos);
  }
}

}  // namespace
}  // namespace gpurun::tools
