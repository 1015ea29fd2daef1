// ImageKeeper: one message each way, with at most one descriptor.
#include "server/images/image_keeper.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>
#include <span>
#include <utility>

#include "base/descriptor_message.h"
#include "base/file_io.h"
#include "base/memory_file.h"
#include "server/images/image_folder.h"

namespace gpurun::server {
namespace {

enum class Step : std::uint32_t { kFind = 1, kRemoveIfDamaged = 2, kAdd = 3 };

struct Request {
  Step step;
  std::uint32_t zero;
  std::uint64_t bytes;  // kAdd: the size of the memory file in the message.
  Sha256Digest digest;
};

// The first message.
struct Beginning {
  char part[ImageKeeper::kNameBytesMax + 1];  // Ends with a zero.
};

struct Answer {
  std::uint32_t found;  // kFind: the file is in the message.
};

// The keeper hashes and writes its input. A slower disk is given up.
constexpr timeval kPatience = {120, 0};
// The limits when the worker ends, which delays the release of its session's GPU memory. One for a
// thread that holds the lock, one for the answer.
constexpr timeval kPatienceAtEnd = {1, 0};
// What the keeper may still do after its worker has ended, all together. A worker that hostile code
// has taken over may have requested much.
constexpr unsigned kSecondsBehindWorker = 10;
// Larger images are waited for, so that little is lost when a whole session is killed.
constexpr std::size_t kUnawaitedBytesMax = std::size_t{1} << 20;

// Runs in the keeper.
void on_workers_end(int) { alarm(kSecondsBehindWorker); }  // The alarm ends this process.

// False: the peer is gone, or does not answer in time. `descriptor` -1: no descriptor.
template <typename Words>
bool send_words(int socket, const Words& words, int descriptor) {
  const std::size_t count = descriptor >= 0 ? 1 : 0;
  return send_message(socket, bytes_of(words), std::span(&descriptor, count), Wait::kYes).ok();
}

// Also false for a message of another length, or with more than one descriptor.
template <typename Words>
bool receive_words(int socket, Words* words, UniqueFd* descriptor) {
  Result<DescriptorMessage> message = receive_message(socket, sizeof *words, Wait::kYes);
  if (!message.ok() || message->bytes.size() != sizeof *words || message->attached.size() > 1) {
    return false;
  }
  std::memcpy(words, message->bytes.data(), sizeof *words);
  if (!message->attached.empty()) *descriptor = std::move(message->attached[0]);
  return true;
}

// Carries out `request`. Returns whether it is a valid one.
bool do_step(const Request& request, ImageFolder& folder, int given, UniqueFd* image) {
  struct stat about;
  switch (request.step) {
    case Step::kFind:
      *image = folder.open_image(request.digest);
      return true;
    case Step::kRemoveIfDamaged:
      folder.remove_if_damaged(request.digest);
      return true;
    case Step::kAdd:
      // Reading anything but a file could block for ever.
      if (given >= 0 && fstat(given, &about) == 0 && S_ISREG(about.st_mode)) {
        folder.add_from(request.digest, given, request.bytes);
      }
      return true;
  }
  return false;
}

// `folder` null: there are no images.
bool serve(int socket, ImageFolder* folder) {
  Request request{};
  UniqueFd given;
  if (!receive_words(socket, &request, &given)) return false;
  UniqueFd image;
  if (folder != nullptr && !do_step(request, *folder, given.get(), &image)) return false;
  const Answer answer{image.valid() ? 1u : 0u};
  return send_words(socket, answer, image.get());
}

// Afterwards the process can only open the files of its user.
bool give_up_rights() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

void close_between(int first, int last) {
  if (first > last) return;
  if (syscall(SYS_close_range, static_cast<unsigned>(first), static_cast<unsigned>(last), 0) == 0) {
    return;
  }
  // For an older kernel. No higher descriptor is open, because this process has just started.
  constexpr int kOpenAtStartMax = 1024;
  for (int fd = first; fd <= std::min(last, kOpenAtStartMax); ++fd) close(fd);
}

// The worker's own code names the part, before it reads any byte of the client.
std::unique_ptr<ImageFolder> open_part(int socket, const std::string& path,
                                       std::uint64_t bytes_max) {
  Beginning beginning{};
  UniqueFd none;
  if (!receive_words(socket, &beginning, &none)) return nullptr;
  const std::string part(beginning.part, strnlen(beginning.part, sizeof beginning.part));
  const std::string rooted = "/" + part + "/";
  if (part.empty() || part.size() > ImageKeeper::kNameBytesMax ||
      rooted.find("//") != std::string::npos || rooted.find("/../") != std::string::npos) {
    return nullptr;
  }
  Result<std::unique_ptr<ImageFolder>> folder = ImageFolder::open(path + "/" + part, bytes_max);
  if (folder.ok()) return *std::move(folder);
  spdlog::warn("no image is kept: {}", folder.status().message());
  return nullptr;
}

[[noreturn]] void keep(int socket, const std::string& path, std::uint64_t bytes_max, pid_t parent) {
  close_between(STDERR_FILENO + 1, socket - 1);
  close_between(socket + 1, std::numeric_limits<int>::max());
  prctl(PR_SET_NAME, "gpurun-images");
  struct sigaction action {};
  action.sa_handler = &on_workers_end;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (getppid() != parent) _exit(125);
  const std::unique_ptr<ImageFolder> folder = open_part(socket, path, bytes_max);
  if (!give_up_rights()) _exit(125);
  // A worker is killed as soon as its program has ended. Its requests are still carried out for a
  // while. The end of its socket follows them.
  while (serve(socket, folder.get())) {
  }
  _exit(0);
}

class KeptImages final : public ImageKeeper {
 public:
  explicit KeptImages(UniqueFd socket) : socket_(std::move(socket)) {}

  void keep(const std::string& part) override {
    Beginning beginning{};
    const std::lock_guard lock(mutex_);
    if (part.size() > kNameBytesMax) return socket_.reset();
    part.copy(beginning.part, part.size());
    if (!send_words(socket_.get(), beginning, -1)) socket_.reset();
  }

  std::optional<Bytes> find(const Sha256Digest& digest) override {
    UniqueFd image;
    if (!ask({Step::kFind, 0, 0, digest}, -1, &image)) return std::nullopt;
    std::optional<Bytes> bytes = read_image(image.get(), digest);
    UniqueFd none;
    if (!bytes.has_value()) ask({Step::kRemoveIfDamaged, 0, 0, digest}, -1, &none);
    return bytes;
  }

  void add(const Sha256Digest& digest, ByteView bundle) override {
    const Result<UniqueFd> copy = create_memory_file("gpurun-image");
    const Status copied = copy.ok() ? write_whole(copy->get(), bundle, "an image is not kept")
                                    : Status(copy.status().code(),
                                             "an image is not kept: " + copy.status().message());
    if (!copied.ok()) {
      spdlog::warn("{}", copied.message());
      return;
    }
    const std::lock_guard lock(mutex_);
    if (!settle_adding()) return;
    adding_ = send_words(socket_.get(), Request{Step::kAdd, 0, bundle.size(), digest}, copy->get());
    if (!adding_) give_up();
    if (bundle.size() > kUnawaitedBytesMax) static_cast<void>(settle_adding());
  }

  void settle() override {
    // Threads with requests hold the lock as long as the disk takes.
    const std::unique_lock lock(mutex_, std::chrono::seconds(kPatienceAtEnd.tv_sec));
    if (!lock.owns_lock() || !socket_.valid()) return;
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatienceAtEnd, sizeof kPatienceAtEnd);
    static_cast<void>(settle_adding());
  }

 private:
  // Returns whether a file came.
  bool ask(const Request& request, int descriptor, UniqueFd* file) {
    const std::lock_guard lock(mutex_);
    if (!settle_adding()) return false;
    Answer answer{};
    if (!send_words(socket_.get(), request, descriptor) ||
        !receive_words(socket_.get(), &answer, file)) {
      give_up();
      return false;
    }
    return answer.found != 0 && file->valid();
  }

  // With the lock held. Waits for the last add(). Returns whether the keeper still answers.
  bool settle_adding() {
    Answer answer{};
    UniqueFd none;
    if (std::exchange(adding_, false) && !receive_words(socket_.get(), &answer, &none)) give_up();
    return socket_.valid();
  }

  void give_up() {
    spdlog::warn("the keeper of images does not answer; this worker goes on without it");
    socket_.reset();
  }

  std::timed_mutex mutex_;
  UniqueFd socket_;      // Guarded by mutex_. Closed: the keeper is given up.
  bool adding_ = false;  // Guarded by mutex_. The answer to an add() is outstanding.
};

}  // namespace

Result<std::unique_ptr<ImageKeeper>> start_image_keeper(const std::string& path,
                                                        std::uint64_t bytes_max) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return Status::from_errno(errno, "socketpair");
  }
  UniqueFd ours(pair[0]);
  UniqueFd theirs(pair[1]);
  setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  setsockopt(ours.get(), SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return Status::from_errno(errno, "fork");
  if (child == 0) {
    ours.reset();
    keep(theirs.get(), path, bytes_max, parent);
  }
  return std::unique_ptr<ImageKeeper>(new KeptImages(std::move(ours)));
}

}  // namespace gpurun::server
