// Confinement: first namespaces, then the empty root, the user, the limits, and last the system
// calls. Each step gives up the right to do the one before it.
#include "server/worker/sandbox/confinement.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/injected_fault.h"
#include "base/unique_fd.h"
#include "server/handover/worker_exit_codes.h"
#include "server/worker/sandbox/system_call_filter.h"
#include "server/worker/sandbox/worker_user.h"

namespace gpurun::server {
namespace {

// The sanitizers have threads and shadow memory of their own, read /proc and start a symbolizer.
// With them a worker changes only its user.
#ifdef GPURUN_INJECTED_FAULTS
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Threads of one worker's user: helpers of lanes, emulated multiprocessors, bulk lanes.
constexpr rlim_t kThreadsMax = 4096;
// Connections, and one descriptor for each piece of memory that a program maps or exports itself.
constexpr rlim_t kDescriptorsMax = 65'536;

constexpr int kNamespaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;

bool write_text(const char* path, const std::string& text) {
  const UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
  return file.valid() &&
         write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Maps only our own user and group, unchanged.
bool keep_own_ids(uid_t uid, gid_t gid) {
  const auto alone = [](auto id) { return std::to_string(id) + " " + std::to_string(id) + " 1"; };
  return write_text("/proc/self/setgroups", "deny") &&
         write_text("/proc/self/gid_map", alone(gid)) &&
         write_text("/proc/self/uid_map", alone(uid));
}

// Enters a user namespace in which only `user` is known, for a root that may not make other
// namespaces. Inside it this process has the right to make all of them. Only a process outside can
// write the maps, so a child does.
bool enter_namespace_of(uid_t user) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return false;
  const UniqueFd reading(ready[0]);
  UniqueFd writing(ready[1]);
  const std::string self = "/proc/" + std::to_string(getpid());
  const std::string map = std::to_string(user) + " " + std::to_string(user) + " 1";
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    writing.reset();
    char word = 0;
    const bool go = read(reading.get(), &word, 1) == 1;
    _exit(go && write_text((self + "/gid_map").c_str(), map) &&
                  write_text((self + "/uid_map").c_str(), map)
              ? 0
              : 1);
  }
  const bool made = unshare(CLONE_NEWUSER) == 0;
  if (made && write(writing.get(), "x", 1) != 1) writing.reset();
  writing.reset();
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  return made && ended == 0;
}

// Afterwards no file can be opened. The new root is mounted over /proc for a moment, because /proc
// exists everywhere.
bool empty_root() {
  if (mount("none", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
            "size=4k,nr_inodes=1,mode=555") != 0 ||
      chdir("/proc") != 0) {
    return false;
  }
  mount(nullptr, ".", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
        nullptr);
  // Old and new root are in one place. The old one lies on top and is removed.
  if (syscall(SYS_pivot_root, ".", ".") == 0) {
    return umount2(".", MNT_DETACH) == 0 && chdir("/") == 0;
  }
  return chroot(".") == 0;  // The root was never mounted, as with an initial RAM disk.
}

// Devices that the system lets every user open and that no CUDA driver needs. RDMA and tunnels
// reach networks that the worker's namespace does not block. The others reach the kernel.
constexpr const char* kRdmaFolder = "/dev/infiniband";
constexpr const char* kHiddenFolders[] = {kRdmaFolder, "/dev/net", "/dev/vfio"};
constexpr const char* kHiddenNodes[] = {"/dev/kvm", "/dev/fuse", "/dev/vhost-net",
                                        "/dev/vhost-vsock"};

// Hides the devices in this mount namespace only.
Status hide_devices(bool rdma) {
  for (const char* folder : kHiddenFolders) {
    if (rdma && folder == kRdmaFolder) continue;
    if (access(folder, F_OK) == 0 &&
        mount("none", folder, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "size=4k,nr_inodes=1,mode=555") != 0) {
      return Status::from_errno(errno, std::string("hiding ") + folder);
    }
  }
  for (const char* node : kHiddenNodes) {
    if (access(node, F_OK) == 0 && mount("/dev/null", node, nullptr, MS_BIND, nullptr) != 0) {
      return Status::from_errno(errno, std::string("hiding ") + node);
    }
  }
  return {};
}

bool drop_capabilities() {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

void lower(__rlimit_resource which, rlim_t to) {
  rlimit limit = {};
  getrlimit(which, &limit);
  limit.rlim_max = std::min(limit.rlim_max, to);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(which, &limit);
}

// A failed allocation ends the worker.
[[noreturn]] void end_for_memory() {
  constexpr char kLine[] = "gpurun-worker: no more memory within this worker's limit; it ends\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kLine, sizeof kLine - 1);
  _exit(kExitMemoryLimit);
}

}  // namespace

Result<Confinement> Confinement::begin(const ConfinementOrder& order) {
  Confinement made(order);
  if (order.full && !kSanitized) GPURUN_RETURN_IF_ERROR(made.make_namespaces());
  return made;
}

Status Confinement::make_namespaces() {
  tzset();  // Reads a file, once.
  const pid_t parent = getppid();
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  // A process that becomes a user of its own does so with its present rights. A process that stays
  // needs a namespace in which it has any rights. There it also has no rights over its user's other
  // processes.
  if (order_.user == 0) {
    user_namespace_ = unshare(CLONE_NEWUSER) == 0;
    if (user_namespace_ && !keep_own_ids(uid, gid)) {
      return Status::from_errno(errno, "the worker's user in a namespace of its own");
    }
  }
  bool made = unshare(kNamespaces) == 0;
  if (!made && errno == EPERM && order_.user != 0) {
    // Without CAP_SYS_ADMIN, as under the unit that we ship.
    user_namespace_ = enter_namespace_of(order_.user);
    made = user_namespace_ && unshare(kNamespaces) == 0;
  }
  // Unmounts outside apply here too. A worker may wait for days, and would keep the file system
  // busy.
  other_namespaces_ = made && mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) == 0;
  if (other_namespaces_) GPURUN_RETURN_IF_ERROR(hide_devices(order_.rdma));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(125);
  return {};
}

Status Confinement::finish(bool emulated, std::uint64_t memory_bytes,
                           const std::function<void()>& opens) {
  const bool full = order_.full && !kSanitized;
  if (full && user_namespace_ && order_.user == 0) add("user-namespace");
  if (full && other_namespaces_) add("network");
  if (full && other_namespaces_ && emulated) {
    if (!empty_root()) return Status::from_errno(errno, "an empty file system for the worker");
    add("files");
  }
  // The capabilities of the namespace, or of root when it keeps its user.
  if (full && order_.user == 0 && !drop_capabilities()) return Status::from_errno(errno, "capset");
  if (order_.user != 0) {
    GPURUN_RETURN_IF_ERROR(become_user(order_.user));
    add("user");
    // In a namespace without root, the change from one user to another drops no capabilities.
    if (user_namespace_ && !drop_capabilities()) return Status::from_errno(errno, "capset");
  }
  if (opens && !(full && emulated)) opens();
  return full ? limit(emulated, memory_bytes) : Status();
}

Status Confinement::limit(bool emulated, std::uint64_t memory_bytes) {
  lower(RLIMIT_CORE, 0);
  lower(RLIMIT_NOFILE, kDescriptorsMax);
  // The kernel counts this for each user, and for each user within a namespace.
  if (order_.user != 0 || user_namespace_) lower(RLIMIT_NPROC, kThreadsMax);
  if (memory_bytes != 0) {
    // Limits private writable memory, so address space that is only reserved costs nothing.
    lower(RLIMIT_DATA, memory_bytes);
    std::set_new_handler(end_for_memory);
    add("memory");
  }
  // NVIDIA's driver looks up its own mappings in /proc, which only a dumpable process may do.
  if (emulated) prctl(PR_SET_DUMPABLE, 0);
  add(emulated ? "system-calls" : "some-system-calls");
  return install_filter(emulated ? AllowedCalls::kEmulatedDevice : AllowedCalls::kAnyDriver);
}

void Confinement::add(const char* part) {
  if (!in_force_.empty()) in_force_ += ' ';
  in_force_ += part;
}

}  // namespace gpurun::server
