// Machine checks: each compares a limit with what sessions, or the programs that use them, take.
#include "tools/gpuctl/health/machine_checks.h"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/memory_file.h"
#include "base/pci_devices.h"

namespace gpurun::tools {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
// A process has up to 12 connections, and CUDA programs open files of their own.
constexpr std::uint64_t kDescriptorsWanted = 1024;
// gpurun's session and the pages that it shares with the program's processes.
constexpr std::uint64_t kFileBytesWanted = 128 << 10;
// A connection over RDMA registers 4 MiB (transport/rdma/offer.h), and a process has up to 12.
constexpr std::uint64_t kLockedWanted = 12 * 4 * kMiB;
// Docker's default. PyTorch's loaders fail with it.
constexpr std::uint64_t kSharedMemorySmall = 64 * kMiB;
// The first one for CUDA 12.4, which gpurund needs (NVIDIA's release notes of CUDA 12.4).
constexpr int kDriverMajorMin = 550;

std::uint64_t limit_of(int kind, bool hard) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(kind), &limit) != 0) return kUnlimited;
  const rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
  return value == RLIM_INFINITY ? kUnlimited : std::uint64_t{value};
}

std::string in_kib(std::uint64_t bytes) {
  return bytes == kUnlimited ? "unlimited" : std::to_string(bytes >> 10) + " KiB";
}

std::string in_mib(std::uint64_t bytes) { return std::to_string(bytes / kMiB) + " MiB"; }

std::string plain(std::uint64_t value) {
  return value == kUnlimited ? "unlimited" : std::to_string(value);
}

Check check_memlock(const SystemFiles& files, const MachineLimits& limits) {
  const char* name = "memlock";
  const std::string text = "locked memory (ulimit -l): " + in_kib(limits.locked_bytes);
  if (limits.locked_bytes == kUnlimited) return ok(name, text);
  if (files.entries("/sys/class/infiniband").empty()) {
    return ok(name, text + ". Sessions over TCP and shared memory lock none");
  }
  if (limits.locked_bytes >= kLockedWanted) return ok(name, text);
  return warning(name,
                 text + ", and RDMA registers up to " + in_mib(kLockedWanted) + " in each process",
                 "ulimit -l unlimited, LimitMEMLOCK=infinity in a service, or --ulimit memlock=-1 "
                 "for a container");
}

Check check_descriptors(const MachineLimits& limits) {
  const char* name = "descriptors";
  const std::string text = "open files (ulimit -n): " + plain(limits.descriptors_soft) +
                           ", at most " + plain(limits.descriptors_hard);
  if (limits.descriptors_soft >= kDescriptorsWanted) return ok(name, text);
  return warning(name, text + ". A session takes up to 12 in each process",
                 "ulimit -n 4096, or LimitNOFILE=4096 in a service");
}

Check check_file_size(const MachineLimits& limits) {
  const char* name = "file-size";
  if (limits.file_bytes_hard >= kFileBytesWanted) {
    return ok(name, "file size (ulimit -H -f): " + in_kib(limits.file_bytes_hard));
  }
  return failed(name,
                "file size (ulimit -H -f): " + in_kib(limits.file_bytes_hard) +
                    ", and gpurun's memory files take 128 KiB",
                "raise the hard limit, or bound the programs' files by the soft limit only");
}

Check check_shared_memory(const MachineLimits& limits) {
  const char* name = "shared-memory";
  if (!limits.no_memory_file.empty()) {
    return failed(name, "no memory file can be made: " + limits.no_memory_file,
                  "allow memfd_create() in the system-call filter of this container or service");
  }
  if (limits.shared_memory_bytes == 0) {
    return warning(name,
                   "/dev/shm is missing. Sessions use memory files, but PyTorch's loaders need it",
                   "mount -t tmpfs tmpfs /dev/shm");
  }
  const std::string text = "/dev/shm has " + in_mib(limits.shared_memory_free) + " free of " +
                           in_mib(limits.shared_memory_bytes) +
                           ". Sessions use memory files instead";
  if (limits.shared_memory_bytes > kSharedMemorySmall) return ok(name, text);
  return warning(name, text + ", but PyTorch's loaders need it",
                 "start the container with --shm-size=8g, or mount -o remount,size=8g /dev/shm");
}

std::vector<std::string> passed_devices(const SystemFiles& files) {
  std::vector<std::string> found;
  for (const std::string& name : files.entries("/dev")) {
    if (name.rfind("nvidia", 0) == 0 || name == "dxg") found.push_back("/dev/" + name);
  }
  for (const std::string& name : files.entries("/dev/infiniband")) {
    if (name.rfind("uverbs", 0) == 0 || name == "rdma_cm")
      found.push_back("/dev/infiniband/" + name);
  }
  return found;
}

bool has_prefix(const std::vector<std::string>& all, const std::string& prefix) {
  return std::any_of(all.begin(), all.end(), [&](const std::string& each) {
    return each.compare(0, prefix.size(), prefix) == 0;
  });
}

Check check_container(const SystemFiles& files, const MachineLimits& limits) {
  const char* name = "container";
  const std::string kind = container_kind(files, limits.container);
  if (kind.empty()) return not_applicable(name, "this is not a container");
  const std::vector<std::string> passed = passed_devices(files);
  std::string text = "in a container (" + kind + "), ";
  if (passed.empty()) text += "without a GPU's or RDMA device's node";
  for (std::size_t i = 0; i < passed.size(); ++i) text += (i == 0 ? "with " : ", ") + passed[i];
  // The kernel's own files are those of the host.
  if (!files.entries("/sys/class/infiniband").empty() &&
      !has_prefix(passed, "/dev/infiniband/uverbs")) {
    return warning(name, text + ". The host has RDMA devices, which are not passed",
                   "start it with --device /dev/infiniband --ulimit memlock=-1");
  }
  if (files.exists("/proc/driver/nvidia/version") && !has_prefix(passed, "/dev/nvidia")) {
    return warning(name, text + ". The host has an NVIDIA driver, and its GPUs are not passed",
                   "start it with --gpus all if it shall use the host's GPUs itself");
  }
  return ok(name, text);
}

// "580.65.06" of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun ...".
std::string version_in(const std::string& text) {
  for (std::size_t at = 0; (at = text.find_first_of("0123456789", at)) != std::string::npos;) {
    const std::size_t end = text.find_first_not_of("0123456789.", at);
    const std::string word = text.substr(at, end - at);
    if (std::count(word.begin(), word.end(), '.') >= 1 && at > 0 && text[at - 1] == ' ')
      return word;
    at = end;
    if (end == std::string::npos) break;
  }
  return "unknown";
}

Check check_driver(const SystemFiles& files) {
  const char* name = "driver";
  const std::vector<PciDevice> all = pci_devices(files);
  const auto gpu = std::find_if(all.begin(), all.end(), is_nvidia_gpu);
  if (const auto version = files.text("/proc/driver/nvidia/version")) {
    const std::string release = version_in(*version);
    const int major = std::atoi(release.c_str());
    if (major != 0 && major < kDriverMajorMin) {
      return warning(name, "NVIDIA's driver " + release + " is too old for gpurund",
                     "install driver " + std::to_string(kDriverMajorMin) + " or later");
    }
    if (files.exists("/dev/nvidiactl")) return ok(name, "NVIDIA's driver " + release);
    return warning(
        name,
        "NVIDIA's driver " + version_in(*version) + " is loaded, and /dev/nvidiactl is missing",
        "run nvidia-modprobe, or start the container with --gpus all");
  }
  if (gpu == all.end()) return not_applicable(name, "this machine has no NVIDIA GPU of its own");
  return warning(name, "the GPU at " + gpu->address + " has no NVIDIA driver",
                 "install NVIDIA's driver, or turn off nouveau (it drives the GPU now: " +
                     (gpu->driver.empty() ? std::string("none") : gpu->driver) + ")");
}

}  // namespace

MachineLimits this_machine() {
  MachineLimits limits;
  limits.locked_bytes = limit_of(RLIMIT_MEMLOCK, false);
  limits.descriptors_soft = limit_of(RLIMIT_NOFILE, false);
  limits.descriptors_hard = limit_of(RLIMIT_NOFILE, true);
  limits.file_bytes_hard = limit_of(RLIMIT_FSIZE, true);
  struct statvfs about = {};
  if (statvfs("/dev/shm", &about) == 0) {
    limits.shared_memory_bytes = std::uint64_t{about.f_blocks} * about.f_frsize;
    limits.shared_memory_free = std::uint64_t{about.f_bavail} * about.f_frsize;
  }
  const Result<UniqueFd> file = create_memory_file("gpuctl-health");
  if (!file.ok()) limits.no_memory_file = file.status().message();
  const char* container = getenv("container");
  if (container != nullptr) limits.container = container;
  return limits;
}

std::string container_kind(const SystemFiles& files, const std::string& variable) {
  if (!variable.empty()) return variable;
  if (const auto kind = files.text("/run/systemd/container")) return *kind;
  if (files.exists("/run/.containerenv")) return "podman";
  if (files.exists("/.dockerenv")) return "docker";
  if (files.exists("/var/run/secrets/kubernetes.io")) return "kubernetes";
  return "";
}

Checks machine_checks(const SystemFiles& files, const MachineLimits& limits) {
  return {check_memlock(files, limits), check_descriptors(limits),      check_file_size(limits),
          check_shared_memory(limits),  check_container(files, limits), check_driver(files)};
}

}  // namespace gpurun::tools
