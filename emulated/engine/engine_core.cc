// The pool of threads, and the choice of what each runs. block.cc runs the blocks themselves.
#include "emulated/engine/engine_core.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace gpurun::emulated {

namespace {

// A grid with fewer threads than this is not worth waking a second host thread, unless it turns out
// to be slow.
constexpr std::uint64_t kSmallGridThreads = 1024;
constexpr auto kSlowBlock = std::chrono::microseconds(50);
// With several grids, how long a thread stays with one of them.
constexpr auto kSlice = std::chrono::milliseconds(1);
// How long a thread may be busy with blocks that it has taken at once. The remaining blocks are
// divided into so many pieces for each thread.
constexpr auto kClaimTime = std::chrono::nanoseconds(100'000);
constexpr std::uint64_t kClaimsLeft = 4;
constexpr std::uint64_t kBlocksBetweenLooks = 16;
// Turns without progress after which a non-cooperative grid gets a further resident block.
constexpr std::size_t kFruitlessTurns = 4;
// Idle stacks that are kept for later launches. Each has a page or two of touched memory.
constexpr std::size_t kSpareStacksMax = 4096;
// A thread that has only polled for this long sleeps between its turns.
constexpr auto kPollingLong = std::chrono::milliseconds(100);
constexpr std::uint64_t kStackBytesMax = std::uint64_t{256} << 20;

// Set on the pool's own threads. Their `done` callbacks need not wake a thread.
thread_local const EngineCore* pool_of_this_thread = nullptr;

int processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Starts a thread that blocks all signals except its own faults. False: the system gives no thread.
template <typename Body>
bool start_thread(std::thread* thread, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&all, fault);
  }
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    *thread = std::thread(std::move(body));
  } catch (const std::system_error&) {
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace

EngineCore::EngineCore(const EngineOptions& options)
    : options_(options), threads_max_(options.threads > 0 ? options.threads : processors()) {}

EngineCore::~EngineCore() {
  cancel(nullptr, kGridLaunchFailed);
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_cv_.notify_all();
  watch_cv_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  if (watch_thread_.joinable()) watch_thread_.join();
}

Status EngineCore::start() {
  handlers_ = std::make_unique<FaultHandlers>();
  std::lock_guard lock(mutex_);
  if (!spawn_locked()) {
    return Status(Code::kResourceExhausted, "no thread to run kernels on");
  }
  return {};
}

bool EngineCore::spawn_locked() {
  if (stopping_ || static_cast<int>(threads_.size()) >= threads_max_) return false;
  const auto index = static_cast<std::uint32_t>(threads_.size());
  std::thread thread;
  if (!start_thread(&thread, [this, index] { pool_main(index); })) return false;
  threads_.push_back(std::move(thread));
  return true;
}

void EngineCore::wake_one_locked() {
  if (idle_ > notified_) {
    ++notified_;
    ++wakes_;
    work_cv_.notify_one();
  } else if (idle_ == 0) {
    (void)spawn_locked();
  }
}

// ---- Grids come and go

EngineCore::GridPtr EngineCore::make_grid(const LaunchRequest& request, Engine::Done done) {
  auto grid = std::make_shared<Grid>(request, std::move(done), ++grid_ids_);
  grid->sm_count = options_.sm_count;
  const std::uint64_t threads = std::max<std::uint32_t>(1, grid->block_threads);
  grid->resident_max =
      std::max<std::uint64_t>({1, options_.resident_threads / threads, grid->cluster_blocks});
  // A cooperative grid is resident as a whole. The driver has checked that it fits.
  if (request.cooperative) grid->resident_max = grid->block_count;
  if (request.function == nullptr || grid->block_count == 0 || grid->block_threads == 0 ||
      grid->block_threads > kBlockThreadsMax || grid->cluster_blocks == 0 ||
      grid->block_count % grid->cluster_blocks != 0) {
    grid->fail(kGridLaunchFailed, "impossible launch dimensions");
  } else if (request.stack_bytes > kStackBytesMax) {
    grid->fail(kGridOutOfMemory,
               "its threads need " + std::to_string(request.stack_bytes) + " bytes of stack each");
  }
  return grid;
}

void EngineCore::enlist(const GridPtr& grid) {
  active_.push_back(grid);
  active_count_.store(static_cast<std::uint32_t>(active_.size()), std::memory_order_relaxed);
  if (options_.watchdog_ms == 0) return;
  const GridFamily* const family = grid->request.family;
  grid->started = family == nullptr ? Clock::now() : family->started;
  grid->reports = family == nullptr ? 0 : family->reports;
  // Short grids, one after the other, end before the watchdog wakes, so the family is checked here.
  // The first grid cannot be late.
  if (family != nullptr && family->launched > 0) {
    const Clock::time_point now = Clock::now();
    if (now >= next_report(*grid)) report(*grid, now);
  }
  if (watching_) return;
  watching_ = true;
  if (watch_thread_.joinable()) {
    watch_cv_.notify_one();
  } else {
    (void)start_thread(&watch_thread_, [this] { watch(); });
  }
}

void EngineCore::submit(const LaunchRequest& request, Engine::Done done) {
  GridPtr grid = make_grid(request, std::move(done));
  std::lock_guard lock(mutex_);
  enlist(grid);
  // A pool thread looks for work again by itself.
  if (pool_of_this_thread != this) wake_one_locked();
}

GridResult EngineCore::run(const LaunchRequest& request) {
  struct Waiter {
    std::mutex mutex;
    std::condition_variable cv;
    std::atomic<bool> over{false};
    GridResult result;
  } waiter;
  static thread_local std::unique_ptr<BlockRunner> runner;
  if (runner == nullptr) runner = std::make_unique<BlockRunner>(guests_++ % options_.sm_count);
  GridPtr grid = make_grid(request, [&waiter](const GridResult& result) {
    std::lock_guard lock(waiter.mutex);
    waiter.result = result;
    waiter.over.store(true);
    waiter.cv.notify_all();
  });
  // Only for this thread while the grid is small, so that no thread is woken.
  grid->open = grid->block_count > 1 && grid->block_count * grid->block_threads > kSmallGridThreads;
  IdleBackOff back_off;
  std::unique_lock lock(mutex_);
  enlist(grid);
  for (;;) {
    Task task;
    const bool taken = take(grid.get(), &task);
    lock.unlock();
    if (taken) {
      back_off_or_go_on(&back_off, work(std::move(task), *runner));
    } else {
      // Other threads hold its last blocks.
      std::unique_lock waiting(waiter.mutex);
      if (!waiter.over.load()) waiter.cv.wait_for(waiting, std::chrono::milliseconds(1));
    }
    if (waiter.over.load()) break;
    lock.lock();
  }
  const std::lock_guard over(waiter.mutex);
  return std::move(waiter.result);
}

void EngineCore::cancel(const ContextRuntime* context, int code) {
  std::lock_guard lock(mutex_);
  for (const GridPtr& grid : active_) {
    if (context != nullptr && grid->request.context != context) continue;
    grid->fail(code, "cancelled");
    grid->open = true;
  }
  // A thread must remove what is cancelled and waiting.
  if (!active_.empty()) wake_one_locked();
}

EngineCounters EngineCore::counters() const {
  std::lock_guard lock(mutex_);
  return {grid_ids_.load(), blocks_.load(), wakes_};
}

// ---- What a thread does next

void EngineCore::pool_main(std::uint32_t index) {
  pool_of_this_thread = this;
  BlockRunner runner(index % options_.sm_count);
  IdleBackOff back_off;
  std::unique_lock lock(mutex_);
  for (;;) {
    Task task;
    if (take(nullptr, &task)) {
      lock.unlock();
      back_off_or_go_on(&back_off, work(std::move(task), runner));
      lock.lock();
      continue;
    }
    if (stopping_ && active_.empty()) return;
    ++idle_;
    if (stopping_) {
      // Other threads hold the last grids.
      work_cv_.wait_for(lock, std::chrono::milliseconds(1));
    } else {
      work_cv_.wait(lock);
    }
    --idle_;
    if (notified_ > 0) --notified_;
    lock.unlock();
    FaultHandlers::refresh();
    lock.lock();
  }
}

bool EngineCore::take(Grid* only, Task* task) {
  if (only != nullptr) {
    if (!only->listed) return false;
    for (const GridPtr& grid : active_) {
      if (grid.get() == only) return take_from(grid, task);
    }
    return false;
  }
  for (std::size_t i = 0; i < active_.size(); ++i) {
    cursor_ = (cursor_ + 1) % active_.size();
    const GridPtr& grid = active_[cursor_];
    if (grid->open && take_from(grid, task)) {
      if (task->more_hands) wake_one_locked();
      return true;
    }
  }
  return false;
}

bool EngineCore::take_from(const GridPtr& grid, Task* task) {
  const std::uint64_t next = grid->next_block.load(std::memory_order_relaxed);
  if (grid->stopped()) {
    if (grid->hands > 0) return false;  // The last of them finishes it.
  } else {
    const std::size_t waiting = grid->waiting.size();
    const bool can_start = next < grid->block_count &&
                           waiting + static_cast<std::size_t>(grid->hands) < grid->resident_max;
    const bool start_first = waiting == 0 || grid->request.cooperative ||
                             grid->fruitless >= std::min(waiting, kFruitlessTurns);
    if (can_start && start_first) {
      grid->fruitless = 0;
      task->spare = spare_block_locked(*grid);
    } else if (waiting > 0) {
      task->block = std::move(grid->waiting.front());
      grid->waiting.pop_front();
    } else {
      return false;
    }
    const std::uint64_t left = grid->block_count - std::min(next, grid->block_count);
    task->more_hands = grid->waiting.size() > 1 || left * grid->block_threads > kSmallGridThreads;
  }
  ++grid->hands;
  task->grid = grid;
  return true;
}

bool EngineCore::work(Task task, BlockRunner& runner) {
  Grid& grid = *task.grid;
  Turn turn;
  const bool continued = task.block != nullptr;
  if (!grid.stopped()) {
    Block::Outcome outcome = Block::Outcome::kFinished;
    std::unique_ptr<Block> block = std::move(task.block);
    if (block != nullptr) {
      outcome = block->step(runner);
      if (outcome == Block::Outcome::kFinished) ++turn.finished;
    }
    if (outcome == Block::Outcome::kFinished) {
      if (block == nullptr) block = std::move(task.spare);
      start_blocks(grid, std::move(block), runner, &turn);
    } else {
      turn.waiting = std::move(block);
    }
  } else {
    turn.waiting = std::move(task.block);
    turn.spare = std::move(task.spare);
  }
  const bool fruitful = turn.finished > 0 || turn.waiting == nullptr;
  settle(task.grid, std::move(turn), continued);
  return fruitful;
}

// How many blocks to take at once. Taking small blocks one by one costs as much as running them.
// Host threads then also write neighbouring pieces of memory in turns.
//
// More than one is taken only from a kernel in its fast form. Its blocks never yield. A thread that
// took a range runs it to its end, or the grid has failed. So no taken block is left unstarted.
//
// A block that waits for a lower one always gets it. Take the lowest block that has not ended. If
// it is not taken, a thread without blocks takes it next. If it is taken, all blocks before it in
// its range have ended, so it runs.
std::uint64_t EngineCore::blocks_at_once(const Grid& grid, std::uint64_t run,
                                         Clock::duration elapsed) const {
  if (grid.request.regions == nullptr || grid.cluster_blocks > 1 || run == 0) {
    return grid.cluster_blocks;
  }
  // A share of the remaining blocks, so that all threads finish together.
  const std::uint64_t next = grid.next_block.load(std::memory_order_relaxed);
  const std::uint64_t left = grid.block_count - std::min(next, grid.block_count);
  const std::uint64_t share = left / (kClaimsLeft * static_cast<std::uint64_t>(threads_max_));
  const auto spent = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(std::chrono::nanoseconds(elapsed).count()));
  const std::uint64_t in_time = static_cast<std::uint64_t>(kClaimTime.count()) * run / spent;
  return std::max<std::uint64_t>(1, std::min(share, in_time));
}

// Starts blocks in index order, one after the other, until one waits.
void EngineCore::start_blocks(Grid& grid, std::unique_ptr<Block> block, BlockRunner& runner,
                              Turn* turn) {
  // Reading the clock costs time, so a grid of one block does not.
  const Clock::time_point start = grid.block_count > 1 ? Clock::now() : Clock::time_point();
  Clock::duration elapsed{};
  bool asked_for_help = false;
  std::uint64_t started = 0;
  // The number of started blocks after which the clock is read next.
  std::uint64_t look = 1;
  std::uint64_t index = 0, end = 0;
  while (!grid.stopped()) {
    if (index == end) {
      const std::uint64_t count = blocks_at_once(grid, started, elapsed);
      index = grid.next_block.fetch_add(count, std::memory_order_relaxed);
      if (index >= grid.block_count) break;
      end = std::min(index + count, grid.block_count);
    }
    if (block == nullptr) block = get_block(grid);
    if (block == nullptr) break;
    // The blocks of a cluster start together, so they are all taken here.
    if (!start_cluster(grid, &block, index, turn)) break;
    started += grid.cluster_blocks;
    index += grid.cluster_blocks;
    if (block->step(runner) != Block::Outcome::kFinished) {
      turn->waiting = std::move(block);
      break;
    }
    ++turn->finished;
    if (!turn->siblings.empty()) break;
    if (index != end || started < look) continue;
    look = started + kBlocksBetweenLooks;
    if (grid.next_block.load(std::memory_order_relaxed) >= grid.block_count) break;
    elapsed = Clock::now() - start;
    if (active_count_.load(std::memory_order_relaxed) > 1 && elapsed > kSlice) break;
    if (elapsed > kSlowBlock && !asked_for_help) {
      asked_for_help = true;
      std::lock_guard lock(mutex_);
      grid.open = true;
      wake_one_locked();
    }
  }
  blocks_.fetch_add(started, std::memory_order_relaxed);
  turn->spare = std::move(block);
}

// Prepares the blocks of one cluster. The first stays in `*block`.
bool EngineCore::start_cluster(Grid& grid, std::unique_ptr<Block>* block, std::uint64_t first,
                               Turn* turn) {
  if (grid.cluster_blocks == 1) return (*block)->begin(grid, first, nullptr);
  auto cluster = std::make_shared<Cluster>(std::uint64_t{grid.cluster_blocks} * grid.block_threads);
  if (!(*block)->begin(grid, first, cluster)) return false;
  for (std::uint32_t i = 1; i < grid.cluster_blocks; ++i) {
    std::unique_ptr<Block> sibling = get_block(grid);
    if (sibling == nullptr || !sibling->begin(grid, first + i, cluster)) return false;
    turn->siblings.push_back(std::move(sibling));
  }
  return true;
}

std::unique_ptr<Block> EngineCore::spare_block_locked(const Grid& grid) {
  std::vector<std::unique_ptr<Block>>& spare =
      spare_blocks_[Block::stack_class(grid.request.stack_bytes)];
  if (spare.empty()) return nullptr;
  std::unique_ptr<Block> block = std::move(spare.back());
  spare.pop_back();
  spare_stacks_ -= block->stacks();
  return block;
}

std::unique_ptr<Block> EngineCore::get_block(Grid& grid) {
  std::unique_ptr<Block> block;
  {
    std::lock_guard lock(mutex_);
    block = spare_block_locked(grid);
  }
  if (block == nullptr) block = Block::create(Block::stack_class(grid.request.stack_bytes));
  if (block == nullptr) grid.fail(kGridOutOfMemory, "no memory for the stacks of its threads");
  return block;
}

void EngineCore::keep_locked(std::unique_ptr<Block> block) {
  if (block == nullptr || spare_stacks_ + block->stacks() > kSpareStacksMax) return;
  spare_stacks_ += block->stacks();
  spare_blocks_[block->stack_bytes()].push_back(std::move(block));
}

void EngineCore::settle(const GridPtr& grid, Turn turn, bool continued) {
  std::unique_lock lock(mutex_);
  --grid->hands;
  grid->finished += turn.finished;
  if (turn.finished > 0) {
    grid->fruitless = 0;
  } else if (continued && turn.waiting != nullptr) {
    ++grid->fruitless;
  }
  keep_locked(std::move(turn.spare));
  if (turn.waiting != nullptr) {
    if (grid->report && !grid->stopped()) {
      grid->report = false;
      GPURUN_LOG(kWarning, "kernel %s: %s", grid->describe().c_str(),
                 turn.waiting->describe().c_str());
    }
    grid->waiting.push_back(std::move(turn.waiting));
  }
  for (std::unique_ptr<Block>& sibling : turn.siblings) {
    grid->waiting.push_back(std::move(sibling));
  }
  if (grid->hands > 0) return;
  const bool over =
      grid->stopped() || (grid->waiting.empty() && grid->next_block.load() >= grid->block_count);
  if (!over) {
    // Other threads may take over what waits here, if the grid is open and they have nothing else.
    if (grid->open && grid->waiting.size() > 1 && pool_of_this_thread == nullptr) {
      wake_one_locked();
    }
    return;
  }
  grid->listed = false;
  active_.erase(std::find(active_.begin(), active_.end(), grid));
  active_count_.store(static_cast<std::uint32_t>(active_.size()), std::memory_order_relaxed);
  std::list<std::unique_ptr<Block>> waiting = std::move(grid->waiting);
  lock.unlock();
  finish(grid, std::move(waiting));
}

// No thread works on the grid any more.
void EngineCore::finish(const GridPtr& grid, std::list<std::unique_ptr<Block>> waiting) {
  for (std::unique_ptr<Block>& block : waiting) block->abandon();
  if (!waiting.empty()) {
    std::lock_guard lock(mutex_);
    for (std::unique_ptr<Block>& block : waiting) keep_locked(std::move(block));
  }
  const GridResult result = grid->take_result();
  if (result.code != kGridOk) {
    GPURUN_LOG(kWarning, "kernel %s failed (%d): %s; block (%u,%u,%u) thread (%u,%u,%u)",
               grid->describe().c_str(), result.code, result.message.c_str(), result.block.x,
               result.block.y, result.block.z, result.thread.x, result.thread.y, result.thread.z);
  }
  if (grid->done) grid->done(result);
}

// A thread that finds only polling blocks yields to other processes and threads, because these may
// do what the blocks wait for.
void EngineCore::back_off_or_go_on(IdleBackOff* back_off, bool fruitful) {
  if (fruitful) {
    back_off->turns = 0;
    return;
  }
  const Clock::time_point now = Clock::now();
  if (back_off->turns++ == 0) back_off->since = now;
  if (back_off->turns % 16 != 0) return;
  sched_yield();
  if (back_off->turns % 1024 == 0 && now - back_off->since > kPollingLong) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// ---- Watchdog

void EngineCore::watch() {
  const auto period = std::chrono::milliseconds(options_.watchdog_ms);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (active_.empty()) {
      watching_ = false;
      watch_cv_.wait(lock);
      continue;
    }
    watching_ = true;
    Clock::time_point next = Clock::now() + period;
    for (const GridPtr& grid : active_) next = std::min(next, next_report(*grid));
    watch_cv_.wait_until(lock, next);
    const Clock::time_point now = Clock::now();
    for (const GridPtr& grid : active_) {
      if (now >= next_report(*grid)) report(*grid, now);
    }
  }
}

EngineCore::Clock::time_point EngineCore::next_report(const Grid& grid) const {
  return grid.started + std::chrono::milliseconds(options_.watchdog_ms) * (grid.reports + 1);
}

void EngineCore::report(Grid& grid, Clock::time_point now) {
  grid.reports = static_cast<std::uint32_t>((now - grid.started) /
                                            std::chrono::milliseconds(options_.watchdog_ms));
  if (grid.request.family != nullptr) grid.request.family->reports = grid.reports;
  const auto seconds = std::chrono::duration<double>(now - grid.started).count();
  GPURUN_LOG(kWarning,
             "kernel %s has been running for %.1f s%s: %llu of %llu blocks are finished, %zu wait, "
             "%d run%s",
             grid.describe().c_str(), seconds, grid.describe_family().c_str(),
             static_cast<unsigned long long>(grid.finished),
             static_cast<unsigned long long>(grid.block_count), grid.waiting.size(), grid.hands,
             options_.watchdog_kills ? "; it is ended" : "");
  if (!grid.waiting.empty()) {
    GPURUN_LOG(kWarning, "kernel %s: %s", grid.describe().c_str(),
               grid.waiting.front()->describe().c_str());
  } else {
    grid.report = true;
  }
  if (!options_.watchdog_kills) return;
  char text[64];
  std::snprintf(text, sizeof text, "the watchdog ended it after %.1f s", seconds);
  grid.fail(kGridLaunchTimeout, text);
  if (grid.hands == 0 && grid.open) wake_one_locked();
}

// ---- The door

Engine::Engine(std::unique_ptr<EngineCore> core) : core_(std::move(core)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  auto core = std::make_unique<EngineCore>(options);
  Status status = core->start();
  if (!status.ok()) return status;
  return std::unique_ptr<Engine>(new Engine(std::move(core)));
}

void Engine::submit(const LaunchRequest& request, Done done) {
  core_->submit(request, std::move(done));
}
GridResult Engine::run(const LaunchRequest& request) { return core_->run(request); }
void Engine::cancel(const ContextRuntime* context, int code) { core_->cancel(context, code); }
EngineCounters Engine::counters() const { return core_->counters(); }

}  // namespace gpurun::emulated
