// SharedMemory: an offer is one small message with the file attached (unix(7), SCM_RIGHTS).
#include "transport/shm/memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "base/descriptor_message.h"
#include "base/memory_file.h"
#include "transport/sockets/address.h"

namespace gpurun::transport::shm {
namespace {

struct Offer {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t ring_bytes;  // 0: there is no memory.
};
static_assert(sizeof(Offer) == 16);
constexpr std::array<char, 8> kMagic = {'g', 'p', 'u', 'r', 'u', 'n', 's', 'm'};
constexpr std::uint32_t kOfferVersion = 1;
// In place of the version: a file of the sender's own, with ring_bytes 0.
constexpr std::uint32_t kOfferOfFile = 0x10001;

// Both RingStates, in a page of their own, before both rings.
constexpr std::size_t kHeadBytes = 4096;
static_assert(2 * sizeof(RingState) <= kHeadBytes);
constexpr std::size_t file_bytes(std::size_t ring_bytes) { return kHeadBytes + 2 * ring_bytes; }

// A process with a lower limit of address space needs it for everything else.
constexpr rlim_t kAddressSpaceMin = rlim_t{256} << 20;

constexpr unsigned kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

bool is_ring_size(std::size_t bytes) {
  return bytes >= kRingBytesMin && bytes <= kRingBytesMax && (bytes & (bytes - 1)) == 0;
}

Result<UniqueFd> make_file(std::size_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < kAddressSpaceMin) {
    return Status(Code::kResourceExhausted, "the limit of address space (ulimit -v) is too low");
  }
  Result<UniqueFd> file = create_sealable_memory_file("gpurun-rings");
  if (!file.ok()) return file;
  GPURUN_RETURN_IF_ERROR(size_memory_file(file->get(), bytes));
  if (fcntl(file->get(), F_ADD_SEALS, kSeals | F_SEAL_SEAL) != 0) {
    return Status::from_errno(errno, "sealing a memory file");
  }
  return file;
}

// Whether the other end can no longer make our accesses fail by a change of the file's size.
bool is_sealed(int file) {
  const int seals = fcntl(file, F_GET_SEALS);
  return seals >= 0 && (static_cast<unsigned>(seals) & kSeals) == kSeals;
}

Status check_file(int file, std::size_t bytes) {
  struct stat about = {};
  if (!is_sealed(file) || fstat(file, &about) != 0 || about.st_size != static_cast<off_t>(bytes)) {
    return Status(Code::kProtocol, "the memory that is offered is no sealed file of " +
                                       std::to_string(bytes) + " bytes");
  }
  return {};
}

Status say(Connection& socket, const Offer& offer, std::span<const int> file, Deadline deadline) {
  for (;;) {
    Status sent = send_message(socket.fd(), byte_view(&offer, sizeof offer), file, Wait::kNever);
    if (sent.code() != Code::kDeadline || deadline.passed()) return sent;
    pollfd room = {socket.fd(), POLLOUT, 0};
    (void)poll(&room, 1, deadline.poll_timeout_ms());
  }
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : start_(std::exchange(other.start_, nullptr)), ring_bytes_(other.ring_bytes_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(start_, other.start_);
  std::swap(ring_bytes_, other.ring_bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (start_ != nullptr) munmap(start_, file_bytes(ring_bytes_));
}

Ring SharedMemory::ring(std::size_t index) const noexcept {
  auto* const states = reinterpret_cast<RingState*>(start_);
  return {states + index, start_ + kHeadBytes + index * ring_bytes_, ring_bytes_};
}

Result<SharedMemory> map(const UniqueFd& file, std::size_t ring_bytes) {
  const std::size_t bytes = file_bytes(ring_bytes);
  void* const start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (start == MAP_FAILED) {
    return Status(Code::kResourceExhausted,
                  "no address space for rings of " + std::to_string(bytes) + " bytes");
  }
  // A child that went on using it would disturb its parent's connection.
  (void)madvise(start, bytes, MADV_DONTFORK);
  SharedMemory memory;
  memory.start_ = static_cast<std::byte*>(start);
  memory.ring_bytes_ = ring_bytes;
  return memory;
}

Result<SharedMemory> offer(Connection& socket, std::size_t ring_bytes, Deadline deadline,
                           std::string* why_none) {
  if (!is_ring_size(ring_bytes)) {
    return Status(Code::kInvalidArgument, "no ring has " + std::to_string(ring_bytes) + " bytes");
  }
  const Result<UniqueFd> file = make_file(file_bytes(ring_bytes));
  // A new file holds zeros, the initial value of every word.
  Result<SharedMemory> memory =
      file.ok() ? map(*file, ring_bytes) : Result<SharedMemory>(file.status());
  if (!memory.ok()) {
    *why_none = memory.status().message();
    GPURUN_RETURN_IF_ERROR(say(socket, {kMagic, kOfferVersion, 0}, {}, deadline));
    return SharedMemory();
  }
  const int descriptor = file->get();
  const Offer words = {kMagic, kOfferVersion, static_cast<std::uint32_t>(ring_bytes)};
  const Status said = say(socket, words, {&descriptor, 1}, deadline);
  if (said.ok()) return memory;
  if (said.code() == Code::kDeadline || said.code() == Code::kPeerGone) return said;
  // Nothing was sent. For example, this user has too many descriptors in flight.
  *why_none = said.message();
  GPURUN_RETURN_IF_ERROR(say(socket, {kMagic, kOfferVersion, 0}, {}, deadline));
  return SharedMemory();
}

bool is_local(const Connection& socket) {
  const Result<sockets::SocketAddress> here = sockets::local_address(socket.fd());
  return here.ok() && here->family() == AF_UNIX;
}

Status offer_file(Connection& socket, int file, Deadline deadline) {
  return say(socket, {kMagic, kOfferOfFile, 0}, {&file, 1}, deadline);
}

Result<SharedMemory> take_offer(Connection& socket, Deadline deadline, UniqueFd* file) {
  Result<DescriptorMessage> message = Status(Code::kDeadline, "nothing was offered");
  for (;;) {
    message = receive_message(socket.fd(), sizeof(Offer), Wait::kNever);
    if (message.status().code() != Code::kDeadline || deadline.passed()) break;
    pollfd came = {socket.fd(), POLLIN, 0};
    (void)poll(&came, 1, deadline.poll_timeout_ms());
  }
  if (!message.ok()) return message.status();
  Offer words = {};
  const Status unfit(Code::kProtocol, socket.description() + ": no offer of shared memory");
  if (message->bytes.size() != sizeof words) return unfit;
  std::memcpy(&words, message->bytes.data(), sizeof words);
  if (words.magic != kMagic) return unfit;
  if (words.version == kOfferOfFile && file != nullptr && message->attached.size() == 1) {
    if (!is_sealed(message->attached.front().get())) return unfit;
    *file = std::move(message->attached.front());
    return SharedMemory();
  }
  if (words.version != kOfferVersion) return unfit;
  if (words.ring_bytes == 0 && message->attached.empty()) return SharedMemory();
  if (!is_ring_size(words.ring_bytes) || message->attached.size() != 1) return unfit;
  const UniqueFd& rings = message->attached.front();
  GPURUN_RETURN_IF_ERROR(check_file(rings.get(), file_bytes(words.ring_bytes)));
  return map(rings, words.ring_bytes);
}

}  // namespace gpurun::transport::shm
