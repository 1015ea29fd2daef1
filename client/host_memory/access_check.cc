// AccessCheck: the handler of faults, and the access to pages.
#include "client/host_memory/access_check.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"
#include "client/process/fork_guard.h"
#include "protocol/log/record.h"

namespace gpurun::client {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

// What the faulting instruction did.
const char* kind_of(const void* context) noexcept {
#if defined(__x86_64__)
  constexpr greg_t kWrites = 2;
  const auto* const machine = static_cast<const ucontext_t*>(context);
  return (machine->uc_mcontext.gregs[REG_ERR] & kWrites) != 0 ? "writes" : "reads";
#else
  (void)context;
  return "accesses";
#endif
}

}  // namespace

std::atomic<AccessCheck*> AccessCheck::g_active{nullptr};

AccessCheck& AccessCheck::begin(UnderWay under_way) {
  AccessCheck* check = active();
  if (check == nullptr) {
    fork_guard::in_each_child(&forget_parents);
    check = new AccessCheck;
  }
  check->of_.store(under_way.of);
  check->ask_.store(under_way.ask);
  g_active.store(check, std::memory_order_release);
  return *check;
}

// A thread of the parent may have held the mutex.
void AccessCheck::forget_parents() {
  AccessCheck* const parents = g_active.exchange(nullptr);
  if (parents != nullptr) parents->allow_all();
}

void AccessCheck::install() {
  struct sigaction now {};
  if (sigaction(SIGSEGV, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &handle) return;
  previous_ = now;
  struct sigaction ours {};
  ours.sa_sigaction = &handle;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&ours.sa_mask);
  (void)sigaction(SIGSEGV, &ours, nullptr);
}

void AccessCheck::handle(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  AccessCheck* const check = active();
  // The kernel sets SEGV_ACCERR for a page without access, and SEGV_MAPERR for an address without a
  // page.
  const bool ours = check != nullptr && info->si_code == SEGV_ACCERR &&
                    check->report(reinterpret_cast<std::uint64_t>(info->si_addr), kind_of(context));
  errno = saved;
  if (!ours && check != nullptr) check->pass_on(signal, info, context);
  if (check == nullptr) act_by_default(signal, info);
}

void AccessCheck::act_by_default(int signal, const siginfo_t* info) noexcept {
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  (void)sigaction(signal, &by_default, nullptr);
  if (info->si_code <= 0) (void)::raise(signal);  // Otherwise the instruction faults again.
}

// The program's handler may call the one before it, which is this one, or set it again and raise
// the signal. The signal then does what it does by default.
void AccessCheck::pass_on(int signal, siginfo_t* info, void* context) noexcept {
  const auto thread = static_cast<pid_t>(syscall(SYS_gettid));
  const bool again = passing_.load() == thread || (info->si_code <= 0 && passed_.load() == thread);
  const struct sigaction before = previous_;
  const bool has_handler = (before.sa_flags & SA_SIGINFO) != 0 ||
                           (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
  if (again || !has_handler) return act_by_default(signal, info);
  passed_.store(thread);
  passing_.store(thread);
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else {
    before.sa_handler(signal);
  }
  passing_.store(0);
}

std::uint64_t AccessCheck::Allocation::pages_begin() const noexcept {
  return address.load(std::memory_order_acquire) & ~(kPageBytes - 1);
}

std::uint64_t AccessCheck::Allocation::pages_end() const noexcept {
  const std::uint64_t end = address.load(std::memory_order_acquire) + bytes.load();
  return (end + kPageBytes - 1) & ~(kPageBytes - 1);
}

// Several variables may share a page.
AccessCheck::Allocation* AccessCheck::find(std::uint64_t address) noexcept {
  const std::size_t used = used_.load(std::memory_order_acquire);
  Allocation* near = nullptr;
  for (std::size_t i = 0; i < used; ++i) {
    Allocation& each = allocations_[i];
    const std::uint64_t start = each.address.load(std::memory_order_acquire);
    if (start == 0 || address < each.pages_begin() || address >= each.pages_end()) continue;
    if (address >= start && address - start < each.bytes.load()) return &each;
    near = &each;
  }
  return near;
}

AccessCheck::Allocation* AccessCheck::beginning_at(std::uint64_t address) noexcept {
  const std::size_t used = used_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    if (allocations_[i].address.load(std::memory_order_acquire) == address) return &allocations_[i];
  }
  return nullptr;
}

bool AccessCheck::report(std::uint64_t address, const char* kind) noexcept {
  Allocation* const found = find(address);
  if (found == nullptr) return false;
  const std::uint64_t start = found->address.load();
  const char* const work = work_under_way();
  // Another thread may have given the access back meanwhile.
  if (!found->reported.exchange(true) && work != nullptr) {
    log::write(log::Level::kWarning,
               "the host %s managed memory at 0x%llx (byte %lld of an allocation of %llu bytes) "
               "while %s may use it. CUDA forbids that where CONCURRENT_MANAGED_ACCESS is 0",
               kind, static_cast<unsigned long long>(address),
               static_cast<long long>(address - start),
               static_cast<unsigned long long>(found->bytes.load()), work);
  }
  return protect(*found, false);
}

bool AccessCheck::protect(Allocation& allocation, bool denied) noexcept {
  if (denied) allocation.denied.store(true, std::memory_order_release);
  const std::uint64_t begin = allocation.pages_begin();
  const int failed = mprotect(reinterpret_cast<void*>(begin), allocation.pages_end() - begin,
                              denied ? PROT_NONE : PROT_READ | PROT_WRITE);
  if (!denied) allocation.denied.store(false, std::memory_order_release);
  return failed == 0;
}

bool AccessCheck::is_under_way(Stream stream) const noexcept {
  const auto ask = ask_.load(std::memory_order_acquire);
  return ask != nullptr && ask(of_.load(std::memory_order_acquire), stream);
}

const char* AccessCheck::work_under_way() const noexcept {
  const char* found = nullptr;
  std::uint64_t number = 0;
  for (const Work& each : works_) {
    const char* const name = each.name.load(std::memory_order_acquire);
    if (name == nullptr || each.number.load() < number) continue;
    if (!is_under_way({each.context.load(), each.stream.load()})) continue;
    found = name;
    number = each.number.load();
  }
  return found;
}

bool AccessCheck::may_be_used(const Allocation& allocation) const noexcept {
  switch (allocation.attachment.load(std::memory_order_acquire)) {
    case Attachment::kHost:
      return false;
    case Attachment::kStream:
      return is_under_way({allocation.context.load(), allocation.stream.load()});
    case Attachment::kGlobal:
      break;
  }
  return work_under_way() != nullptr;
}

void AccessCheck::add(std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t used = used_.load(std::memory_order_relaxed);
  std::size_t place = 0;
  while (place < used && allocations_[place].address.load() != 0) ++place;
  if (place == kAllocationsMax) {
    if (!said_full_) {
      GPURUN_LOG(kWarning, "more than %zu managed allocations: the others are not checked",
                 kAllocationsMax);
    }
    said_full_ = true;
    return;
  }
  Allocation& mine = allocations_[place];
  mine.attachment.store(Attachment::kGlobal);
  mine.denied.store(false);
  mine.reported.store(false);
  mine.bytes.store(bytes);
  mine.address.store(address, std::memory_order_release);
  if (place == used) used_.store(used + 1, std::memory_order_release);
}

void AccessCheck::remove(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  Allocation* const found = beginning_at(address);
  if (found == nullptr) return;
  (void)protect(*found, false);
  found->address.store(0, std::memory_order_release);
}

void AccessCheck::attach(std::uint64_t address, Attachment attachment, Stream stream) {
  const std::lock_guard lock(mutex_);
  Allocation* const found = beginning_at(address);
  if (found == nullptr) return;
  found->context.store(stream.context);
  found->stream.store(stream.stream);
  found->attachment.store(attachment, std::memory_order_release);
  set_access(*found);
}

// After one report the access is allowed until more work is issued.
void AccessCheck::set_access(Allocation& allocation) noexcept {
  const bool denied = own_accesses_ == 0 && !allocation.reported.load() && may_be_used(allocation);
  (void)protect(allocation, denied);
}

void AccessCheck::note_work(Stream stream, std::string_view name) {
  const std::lock_guard lock(mutex_);
  auto known = names_.find(name);
  if (known == names_.end()) known = names_.emplace(name).first;
  Work* mine = works_.data();
  for (Work& each : works_) {
    if (each.context.load() == stream.context && each.stream.load() == stream.stream) {
      mine = &each;
      break;
    }
    if (each.number.load() < mine->number.load()) mine = &each;
  }
  mine->name.store(known->c_str());
  mine->context.store(stream.context);
  mine->stream.store(stream.stream);
  mine->number.store(numbers_.fetch_add(1) + 1, std::memory_order_release);
}

void AccessCheck::begin_work() {
  {
    const std::lock_guard lock(mutex_);
    const std::size_t used = used_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < used; ++i) allocations_[i].reported.store(false);
  }
  deny();
}

void AccessCheck::deny() {
  const std::lock_guard lock(mutex_);
  install();
  const std::size_t used = used_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < used; ++i) {
    if (allocations_[i].address.load() != 0) set_access(allocations_[i]);
  }
}

void AccessCheck::begin_own_access() noexcept {
  const std::lock_guard lock(mutex_);
  ++own_accesses_;
  allow_all();
}

void AccessCheck::end_own_access() {
  {
    const std::lock_guard lock(mutex_);
    --own_accesses_;
  }
  deny();
}

void AccessCheck::allow_all() noexcept {
  const std::size_t used = used_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < used; ++i) {
    if (allocations_[i].address.load() != 0) (void)protect(allocations_[i], false);
  }
}

}  // namespace gpurun::client
