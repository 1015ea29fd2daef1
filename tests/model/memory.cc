// Memory as the threads see it: the last accesses to each byte, and for each atomic location the
// stores that a load may still see.
#include <malloc.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "tests/model/atomics.h"
#include "tests/model/model.h"
#include "tests/model/runtime.h"

namespace gpurun::model {
namespace {

constexpr std::size_t kGranuleBytes = 8;
constexpr std::size_t kGranules = std::size_t{1} << 17;  // For one execution.
constexpr std::size_t kAccesses = 12;
constexpr std::size_t kStoresKept = 8;

struct Access {
  std::uint8_t mask;
  std::uint8_t thread;
  bool write;
  Kind kind;
  std::uint32_t clock;
  const void* pc;
};

struct Store {
  std::uint64_t value;
  int thread;
  std::uint32_t clock;
  bool sequential;
  Clock released;  // Passed on to an acquiring load.
};

struct Cell {
  Cell(std::uintptr_t at, unsigned size) : address(at), bytes(size) {}
  std::uintptr_t address;
  unsigned bytes;
  std::vector<Store> stores;                     // A bounded number of last stores.
  std::uint64_t first = 0;                       // Number of stores.front().
  std::array<std::uint64_t, kThreadsMax> saw{};  // No older store may be seen.
  bool changed = false;                          // Changed without an operation on this cell.
  int changer = 0;
  std::uint32_t changer_clock = 0;
  Clock changer_released;
};

struct Granule {
  std::uintptr_t key = 0;
  std::uint32_t generation = 0;
  std::uint32_t accesses = 0;
  Access access[kAccesses];
  std::vector<Cell> cells;
};

std::vector<Granule>& granules() {
  static auto* const all = new std::vector<Granule>(kGranules);
  return *all;
}
std::uint32_t generation = 0;
std::vector<std::uint32_t>& used() {  // Granules used in this execution.
  static auto* const all = new std::vector<std::uint32_t>;
  return *all;
}

std::size_t first_place(std::uintptr_t key) { return (key * 0x9E3779B97F4A7C15ull) >> (64 - 17); }

Granule* find_granule(std::uintptr_t key) {
  auto& all = granules();
  for (std::size_t at = first_place(key); all[at].generation == generation;
       at = (at + 1) % kGranules) {
    if (all[at].key == key) return &all[at];
  }
  return nullptr;
}

Granule& granule_of(std::uintptr_t key) {
  auto& all = granules();
  std::size_t at = first_place(key);
  for (;; at = (at + 1) % kGranules) {
    Granule& granule = all[at];
    if (granule.generation != generation) {
      if (used().size() > kGranules / 2) violated("the execution touches too much memory");
      used().push_back(static_cast<std::uint32_t>(at));
      granule.generation = generation;
      granule.key = key;
      granule.accesses = 0;
      granule.cells.clear();
      return granule;
    }
    if (granule.key == key) return granule;
  }
}

std::uint8_t mask_of(std::uintptr_t start, std::uintptr_t end, std::uintptr_t key) {
  const std::uintptr_t base = key * kGranuleBytes;
  const unsigned from = start > base ? static_cast<unsigned>(start - base) : 0;
  const unsigned to = end < base + kGranuleBytes ? static_cast<unsigned>(end - base) : 8;
  return static_cast<std::uint8_t>((0xFFu << from) & (0xFFu >> (8 - to)));
}

[[noreturn]] void race(const Access& earlier, const char* what) {
  const std::string by = std::string(world.fibers[earlier.thread].name);
  trace("RACES WITH", nullptr, earlier.thread, earlier.pc);
  violated(std::string("a data race: a ") + what + " after an access by the thread " + by +
           " that does not happen before it");
}

void note_in(Granule& granule, std::uint8_t mask, bool write, Kind kind, const void* pc) {
  const auto self = static_cast<std::uint8_t>(world.current->id);
  const Clock& clock = world.current->clock;
  Access* mine = nullptr;
  const std::size_t count = granule.accesses < kAccesses ? granule.accesses : kAccesses;
  for (std::size_t i = 0; i < count; ++i) {
    Access& each = granule.access[i];
    if (each.thread == self) {
      if (each.write == write && each.kind == kind && each.mask == mask) mine = &each;
      continue;
    }
    if ((each.mask & mask) == 0 || !(each.write || write)) continue;
    if (each.kind == Kind::kAtomic && kind == Kind::kAtomic) continue;
    const auto& before = each.kind == Kind::kOutside ? clock.known : clock.at;
    if (each.clock > before[each.thread]) race(each, write ? "write" : "read");
  }
  if (mine == nullptr) mine = &granule.access[granule.accesses++ % kAccesses];
  *mine = {mask, self, write, kind, clock.at[self], pc};
}

void mark_changed(Cell& cell, bool with_clock) {
  cell.changed = true;
  cell.changer = world.current->id;
  cell.changer_clock = world.current->clock.at[static_cast<std::size_t>(world.current->id)];
  cell.changer_released = with_clock ? world.current->clock : Clock();
}

bool overlaps(const Cell& cell, std::uintptr_t start, std::uintptr_t end) {
  return cell.address < end && start < cell.address + cell.bytes;
}

std::uint64_t read_raw(const void* address, unsigned bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, address, bytes);
  return value;
}

void append(Cell& cell, const Store& store) {
  if (cell.stores.size() == kStoresKept) {
    cell.stores.erase(cell.stores.begin());
    ++cell.first;
  }
  cell.stores.push_back(store);
}

Cell& cell_at(const void* address, unsigned bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  Granule& granule = granule_of(start / kGranuleBytes);
  Cell* found = nullptr;
  for (Cell& cell : granule.cells) {
    if (cell.address == start && cell.bytes == bytes) found = &cell;
  }
  if (found == nullptr) {
    Cell cell(start, bytes);
    append(cell, {read_raw(address, bytes), 0, 0, false, Clock()});
    // Joins what was released at this place through operations of other sizes.
    for (const Cell& other : granule.cells) {
      if (!overlaps(other, start, start + bytes)) continue;
      cell.stores.back().released.join(other.stores.back().released);
    }
    granule.cells.push_back(std::move(cell));
    found = &granule.cells.back();
  }
  if (found->changed) {
    append(*found, {read_raw(address, bytes), found->changer, found->changer_clock, false,
                    found->changer_released});
    found->changed = false;
  }
  return *found;
}

void changed_elsewhere(const Cell& by, bool with_clock) {
  Granule& granule = granule_of(by.address / kGranuleBytes);
  if (granule.cells.size() == 1) return;
  for (Cell& cell : granule.cells) {
    if (&cell != &by && overlaps(cell, by.address, by.address + by.bytes)) {
      mark_changed(cell, with_clock);
    }
  }
}

bool acquires(Order order) { return order != Order::kRelaxed && order != Order::kRelease; }
bool releases(Order order) { return order >= Order::kRelease; }

void learn(const Store& store, Order order) {
  (acquires(order) ? world.current->clock : world.current->acquired).join(store.released);
}

// The oldest store that a load by the current thread may see.
std::uint64_t oldest_seen(const Cell& cell, Order order) {
  const Fiber& self = *world.current;
  std::uint64_t oldest = std::max(cell.saw[static_cast<std::size_t>(self.id)], cell.first);
  for (std::size_t i = cell.stores.size(); i-- > 0;) {
    const Store& store = cell.stores[i];
    const bool before = store.clock <= self.clock.known[static_cast<std::size_t>(store.thread)];
    if (before || (order == Order::kSequential && store.sequential)) {
      return std::max(oldest, cell.first + i);
    }
  }
  return oldest;
}

}  // namespace

void forget_memory() {
  ++generation;
  used().clear();
}

void note_access(const void* address, std::size_t bytes, bool write, Kind kind, const void* pc) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = start + bytes;
  if (start - world.locals_start < world.locals_bytes) return;
  // Each thread has its own. All threads of the model have one.
  if (start == reinterpret_cast<std::uintptr_t>(&errno)) return;
  for (std::uintptr_t key = start / kGranuleBytes; key * kGranuleBytes < end; ++key) {
    Granule& granule = granule_of(key);
    note_in(granule, mask_of(start, end, key), write, kind, pc);
    if (!write || kind == Kind::kAtomic) continue;
    for (Cell& cell : granule.cells) {
      if (overlaps(cell, start, end)) mark_changed(cell, false);
    }
  }
}

// Calls `visit` for each known granule of the range.
template <typename Visit>
static void for_each_known(const void* address, std::size_t bytes, Visit visit) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t first = start / kGranuleBytes;
  const std::uintptr_t last = (start + bytes - 1) / kGranuleBytes;
  if (last - first > used().size()) {
    for (const std::uint32_t at : used()) {
      Granule& granule = granules()[at];
      if (granule.key >= first && granule.key <= last) visit(granule);
    }
    return;
  }
  for (std::uintptr_t key = first; key <= last; ++key) {
    if (Granule* granule = find_granule(key); granule != nullptr) visit(*granule);
  }
}

void memory_given(const void* address, std::size_t bytes) {
  for_each_known(address, bytes, [](Granule& granule) {
    granule.accesses = 0;
    granule.cells.clear();
  });
}

void memory_taken(const void* address, std::size_t bytes, const void* pc) {
  for_each_known(address, bytes,
                 [pc](Granule& granule) { note_in(granule, 0xFF, true, Kind::kPlain, pc); });
}

std::uint64_t atomic_load(const void* address, unsigned bytes, Order order, const void* pc) {
  if (!memory_seen()) return read_raw(address, bytes);
  const Inside inside;
  schedule_point();
  if (!world.exploring) return read_raw(address, bytes);  // The exploration ended meanwhile.
  note_access(address, bytes, false, Kind::kAtomic, pc);
  Cell& cell = cell_at(address, bytes);
  const std::uint64_t newest = cell.first + cell.stores.size() - 1;
  std::uint64_t seen_store = newest;
  if (world.stale_left != 0) {
    const std::uint64_t oldest = oldest_seen(cell, order);
    if (oldest < newest) {
      seen_store = newest - next_choice(static_cast<unsigned>(newest - oldest + 1), true);
      if (seen_store != newest) --world.stale_left;
    }
  }
  cell.saw[static_cast<std::size_t>(world.current->id)] = seen_store;
  const Store& store = cell.stores[static_cast<std::size_t>(seen_store - cell.first)];
  learn(store, order);
  trace(seen_store == newest ? "loads" : "LOADS AN OLD VALUE", address, store.value, pc);
  tick();
  return store.value;
}

void write_raw(void* address, unsigned bytes, std::uint64_t value) {
  std::memcpy(address, &value, bytes);
}

void atomic_store(void* address, unsigned bytes, std::uint64_t value, Order order, const void* pc) {
  if (!memory_seen()) return write_raw(address, bytes, value);
  const Inside inside;
  schedule_point();
  if (!world.exploring) return write_raw(address, bytes, value);
  note_access(address, bytes, true, Kind::kAtomic, pc);
  Cell& cell = cell_at(address, bytes);
  Fiber& self = *world.current;
  const auto id = static_cast<std::size_t>(self.id);
  append(cell, {value, self.id, self.clock.at[id], order == Order::kSequential,
                releases(order) ? self.clock : self.released});
  cell.saw[id] = cell.first + cell.stores.size() - 1;
  changed_elsewhere(cell, true);
  write_raw(address, bytes, value);
  trace("stores", address, value, pc);
  tick();
}

bool atomic_update(void* address, unsigned bytes, Order order, const void* pc, std::uint64_t* old,
                   const std::function<bool(std::uint64_t old, std::uint64_t* next)>& change) {
  const bool watched = memory_seen();
  const Inside inside;
  if (watched) schedule_point();
  if (!watched || !world.exploring) {
    *old = read_raw(address, bytes);
    std::uint64_t next = 0;
    const bool changes = change(*old, &next);
    if (changes) write_raw(address, bytes, next);
    return changes;
  }
  note_access(address, bytes, true, Kind::kAtomic, pc);
  Cell& cell = cell_at(address, bytes);
  Fiber& self = *world.current;
  const auto id = static_cast<std::size_t>(self.id);
  const Store before = cell.stores.back();
  *old = before.value;
  learn(before, order);
  std::uint64_t next = 0;
  const bool changes = change(*old, &next);
  if (changes) {
    Store store{next, self.id, self.clock.at[id], order == Order::kSequential,
                releases(order) ? self.clock : self.released};
    store.released.join(before.released);  // Continues the release sequence.
    append(cell, store);
    changed_elsewhere(cell, true);
    write_raw(address, bytes, next);
  }
  cell.saw[id] = cell.first + cell.stores.size() - 1;
  trace(changes ? "updates" : "compares in vain", address, changes ? next : *old, pc);
  tick();
  return changes;
}

void fence(Order order) {
  if (!memory_seen()) return;
  const Inside inside;
  schedule_point();
  Fiber& self = *world.current;
  if (acquires(order)) self.clock.join(self.acquired);
  if (order == Order::kSequential) {
    self.clock.join(world.fences);
    world.fences.join(self.clock);
  }
  if (releases(order)) self.released = self.clock;
  tick();
}

void compared(const void* memory, std::size_t bytes) {
  world.compared.emplace_back(reinterpret_cast<std::uintptr_t>(memory), bytes);
}

bool is_compared(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const auto& [start, bytes] : world.compared) {
    if (at - start >= bytes) continue;
    if (at % 32 == 0) schedule_point();
    return true;
  }
  return false;
}

void reads(const void* from, std::size_t bytes) {
  if (!world.exploring) return;
  note_access(from, bytes, false, Kind::kOutside, __builtin_return_address(0));
}
void writes(void* to, std::size_t bytes) {
  if (!world.exploring) return;
  note_access(to, bytes, true, Kind::kOutside, __builtin_return_address(0));
}

}  // namespace gpurun::model

// Reused memory has no history. The C++ library's allocations come here, too.
#define OF_PROGRAM __attribute__((visibility("default")))
OF_PROGRAM void* operator new(std::size_t bytes) {
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  if (gpurun::model::world.exploring) {
    gpurun::model::memory_given(memory, malloc_usable_size(memory));
  }
  return memory;
}
OF_PROGRAM void operator delete(void* memory) noexcept {
  if (memory != nullptr && gpurun::model::memory_seen()) {
    const gpurun::model::Inside inside;
    gpurun::model::memory_taken(memory, malloc_usable_size(memory), __builtin_return_address(0));
  }
  std::free(memory);
}
OF_PROGRAM void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
