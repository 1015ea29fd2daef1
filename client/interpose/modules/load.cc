// Loading: sends images. See load.h.
#include "client/interpose/modules/load.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/log.h"
#include "client/bulk/bulk.h"
#include "client/interpose/memory/managed_variables.h"
#include "client/interpose/modules/adjacent_fatbins.h"
#include "client/interpose/modules/table_cache.h"
#include "protocol/calls/image_bundle.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose::modules {
namespace {

using protocol::ImageLoad;
using protocol::ImageOutcome;
using protocol::Order;
using State = Loaded::State;

// Bytes of the other images in the request for one image.
constexpr std::size_t kCompanionBytesMax = std::size_t{128} << 10;

// An image that is new to this user goes along with the question about it up to this size. It must
// be too large for a record. The worker hardly ever has such an image from elsewhere.
constexpr std::size_t kUnaskedImageBytesMax = std::size_t{1} << 20;

int server_device(const EntryContext& here) {
  if (here.context != nullptr) return here.context->server_ordinal;
  const Device* first = here.devices().device(0);
  return first == nullptr ? 0 : first->server_ordinal;
}

CallSite load_site(const EntryContext& here, HandleKind kind, Order order) {
  CallSite site = here.site(order);
  site.opcode =
      kind == HandleKind::kLibrary ? opcode::cuLibraryLoadData : opcode::cuModuleLoadDataEx;
  site.form = protocol::Form::kRaw;
  // Without a context there is no earlier work to be ordered after.
  if (site.context == 0 && order == Order::kContext) site.order = Order::kLane;
  if (site.order != Order::kLane) site.flags = protocol::kFlagPassesStreams;
  return site;
}

// One round trip. `earlier` gets an earlier call's failure although this one has done its work.
int ask(const EntryContext& here, const CallSite& site, std::span<const ImageLoad> loads,
        ByteView bulk, std::vector<ImageOutcome>* outcomes, int* earlier) {
  const Bytes payload = protocol::pack(loads);
  Reply reply;
  const ByteView part(payload);
  const int result = here.session().call_with_bulk(
      *here.lane, site, std::span<const ByteView>(&part, 1), bulk, &reply);
  if (reply.result != 0 || reply.payload.empty()) {
    if (result != 0) return result;
    return reply.result != 0 ? reply.result : int{CUDA_ERROR_UNKNOWN};
  }
  auto unpacked = protocol::unpack_outcomes(reply.payload);
  if (!unpacked.ok() || unpacked->size() != loads.size()) {
    GPURUN_LOG(
        kError, "the worker answered a load with nonsense: %s",
        unpacked.ok() ? "not one outcome for each image" : unpacked.status().to_string().c_str());
    return CUDA_ERROR_UNKNOWN;
  }
  *outcomes = std::move(*unpacked);
  if (result != 0) *earlier = result;
  return 0;
}

void settle(Loaded& loaded, int result, std::shared_ptr<KernelTable> table, bool confirmed) {
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    loaded.state = result == 0 ? State::kReady : State::kFailed;
    loaded.failure = result;
    loaded.confirmed = confirmed;
    loaded.table = std::move(table);
  }
  all.changed.notify_all();
}

// nullptr: not one of our devices.
const Device* device_of_server(const EntryContext& here, int ordinal) {
  const DeviceSnapshot& all = *here.process->all_devices;
  for (int i = 0; i < all.device_count(); ++i) {
    if (all.device(i)->server_ordinal == ordinal) return all.device(i);
  }
  return nullptr;
}

std::shared_ptr<KernelTable> make_table(ImageOutcome&& outcome, int device) {
  auto table = std::make_shared<KernelTable>(device);
  for (protocol::KernelDescription& kernel : outcome.kernels) table->add(std::move(kernel));
  if (outcome.complete) table->set_complete();
  return table;
}

// The table that this process or an earlier one got for the image. nullptr: none.
std::shared_ptr<KernelTable> known_table(const EntryContext& here, const Loaded& loaded) {
  // With GPURUN_SYNC each call must return its own failure, so the worker is asked.
  if (here.session().every_call_is_a_fence()) return nullptr;
  const int ordinal = server_device(here);
  if (auto table = registry().known.find(loaded.digest, ordinal); table != nullptr) return table;
  const Device* device = device_of_server(here, ordinal);
  if (device == nullptr) return nullptr;
  const Sha256Digest key = table_key(loaded.digest, *here.process->all_devices, *device,
                                     here.process->server, here.process->server_release);
  std::optional<ImageOutcome> outcome = TableCache::of_user().find(key);
  if (!outcome.has_value()) return nullptr;
  auto table = make_table(std::move(*outcome), ordinal);
  registry().known.add(loaded.digest, table);
  return table;
}

void settle(const EntryContext& here, Loaded& loaded, ImageOutcome&& outcome, bool with_options) {
  if (outcome.result != 0 || outcome.missing) {
    const int result = outcome.result != 0 ? outcome.result : int{CUDA_ERROR_UNKNOWN};
    return settle(loaded, result, nullptr, true);
  }
  // Options may change the compiler's output for an image, so this table is not shared.
  const Device* device = with_options ? nullptr : device_of_server(here, outcome.device);
  if (device != nullptr) {
    TableCache::of_user().add(table_key(loaded.digest, *here.process->all_devices, *device,
                                        here.process->server, here.process->server_release),
                              outcome);
  }
  const bool kept = outcome.kept;
  const int ordinal = outcome.device;
  auto table = make_table(std::move(outcome), ordinal);
  if (kept) table->set_kept();
  if (device != nullptr) registry().known.add(loaded.digest, table);
  settle(loaded, 0, std::move(table), true);
}

ImageLoad request_for(const Loaded& loaded, const JitRequest* jit) {
  ImageLoad load;
  load.handle = loaded.handle;
  load.digest = loaded.digest;
  if (jit != nullptr) {
    load.options = jit->numbers;
    load.info_log_bytes = jit->info_log_bytes;
    load.error_log_bytes = jit->error_log_bytes;
  }
  return load;
}

// Whether the image can go along with the question, beside the record. It then goes alone.
bool may_go_along(const Loaded& loaded) {
  const std::uint64_t bytes = protocol::bundle_bytes(loaded.image);
  return bytes > protocol::kInlineImageBytesMax && bytes <= kUnaskedImageBytesMax;
}

// Without a cache, and if every load asks, it is unknown whether the image is new.
bool goes_along(const EntryContext& here, const Loaded& loaded, bool with_options) {
  return may_go_along(loaded) && !with_options && !here.session().every_call_is_a_fence() &&
         TableCache::of_user().keeps() && known_table(here, loaded) == nullptr;
}

// Posts a load without waiting. The table is known, and the worker has the image or is offered it.
// False: the worker must be asked.
bool post_known(const EntryContext& here, Loaded& loaded, std::shared_ptr<KernelTable> table) {
  const ImageLoad load = request_for(loaded, nullptr);
  const Bytes payload = protocol::pack(std::span<const ImageLoad>(&load, 1));
  const CallSite site = load_site(here, loaded.kind, Order::kOrderedHost);
  int result = 0;
  if (table->kept()) {
    result = here.session().post(*here.lane, site, ByteView(payload));
  } else {
    if (protocol::bundle_bytes(loaded.image) > Bulk::kOfferedBytesMax) return false;
    auto bundle = std::make_shared<const Bytes>(protocol::make_bundle(loaded.image));
    bool offered = false;
    result = here.session().post_with_offer(*here.lane, site, ByteView(payload), std::move(bundle),
                                            &offered);
    if (!offered) return false;
  }
  settle(loaded, result, std::move(table), false);
  return true;
}

// The worker replied that it does not have the image.
void send_image(const EntryContext& here, Loaded& loaded, const JitRequest* jit,
                ImageOutcome* outcome, int* earlier) {
  const Bytes bundle = protocol::make_bundle(loaded.image);
  const ImageLoad load = request_for(loaded, jit);
  std::vector<ImageOutcome> outcomes;
  // The context exists, because the first request ran in it. So only this lane waits for the bytes.
  outcome->result = ask(here, load_site(here, loaded.kind, Order::kLane),
                        std::span<const ImageLoad>(&load, 1), bundle, &outcomes, earlier);
  if (outcome->result == 0) *outcome = std::move(outcomes.front());
}

// Loads all of `batch`, which this thread has marked kLoading. Settles each of them. Returns an
// earlier call's failure, otherwise 0.
int submit(const EntryContext& here, const std::vector<Loaded*>& batch, JitRequest* jit) {
  const bool with_options = jit != nullptr && !jit->empty();
  std::vector<ImageLoad> loads;
  std::vector<Bytes> bundles;
  std::vector<Loaded*> asked;
  for (Loaded* loaded : batch) {
    const std::uint64_t bytes = protocol::bundle_bytes(loaded->image);
    if (bytes > limits::kImageBytesMax) {
      settle(*loaded, CUDA_ERROR_INVALID_IMAGE, nullptr, true);
      continue;
    }
    // ensure() has computed the digest of the batch's first image, which may be large.
    if (loaded->digest == Sha256Digest{}) {
      loaded->digest = protocol::bundle_digest(loaded->image);
    }
    auto table = with_options ? nullptr : known_table(here, *loaded);
    if (table != nullptr && post_known(here, *loaded, std::move(table))) continue;
    loads.push_back(request_for(*loaded, jit));
    asked.push_back(loaded);
    if (bytes <= protocol::kInlineImageBytesMax) {
      bundles.push_back(protocol::make_bundle(loaded->image));
      loads.back().image = bundles.back();  // Moving the vector's elements keeps their bytes.
    }
  }
  if (loads.empty()) return 0;
  int earlier = 0;
  std::vector<ImageOutcome> outcomes;
  const CallSite site = load_site(here, batch.front()->kind, Order::kContext);
  Bytes beside;
  if (asked.size() == 1 && goes_along(here, *asked.front(), with_options)) {
    beside = protocol::make_bundle(asked.front()->image);
  }
  const int result = ask(here, site, loads, beside, &outcomes, &earlier);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (result != 0) {
      settle(*asked[i], result, nullptr, true);
      continue;
    }
    if (outcomes[i].missing) {
      outcomes[i].missing = false;
      send_image(here, *asked[i], jit, &outcomes[i], &earlier);
    }
    if (jit != nullptr) jit->write(outcomes[i]);
    settle(here, *asked[i], std::move(outcomes[i]), with_options);
  }
  return earlier;
}

// Creates a library, marked as loading, before the program asks for it. nullptr: not possible.
Loaded* make_unasked(const EntryContext& here, const void* wrapper, std::size_t bytes_max) {
  Result<driver_abi::Image> image = driver_abi::image_at(wrapper, protocol::kInlineImageBytesMax);
  if (!image.ok() || protocol::bundle_bytes(*image) > bytes_max) return nullptr;
  auto made = std::make_unique<Loaded>();
  made->kind = HandleKind::kLibrary;
  made->image = *std::move(image);
  made->wrapper = wrapper;
  made->unasked = true;
  made->state = State::kLoading;
  made->handle = here.handles().mint(HandleKind::kLibrary, 0, made.get());
  return made->handle == 0 ? nullptr : made.release();
}

// Adds adjacent images to a batch if the worker must be asked about its first image.
void add_adjacent_images(const EntryContext& here, std::vector<Loaded*>* batch) {
  const void* const wrapper = batch->front()->wrapper;
  if (wrapper == nullptr) return;
  std::size_t bytes = 0;
  for (const Loaded* each : *batch) bytes += protocol::bundle_bytes(each->image);
  // Called without the registry's mutex, because the loader has locks of its own.
  const std::vector<const void*> adjacent = adjacent_wrappers(wrapper);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const void* each : adjacent) {
    if (batch->size() == protocol::kLoadsMax || bytes >= kCompanionBytesMax) return;
    if (all.by_wrapper.count(each) != 0) continue;
    Loaded* loaded = make_unasked(
        here, each, std::min(protocol::kInlineImageBytesMax, kCompanionBytesMax - bytes));
    if (loaded == nullptr) continue;
    bytes += protocol::bundle_bytes(loaded->image);
    all.alive.insert(loaded);
    all.by_wrapper[each] = loaded;
    batch->push_back(loaded);
  }
}

// The library that was already loaded as an adjacent image. nullptr: there is no such library.
Loaded* take_unasked(EntryContext& here, const driver_abi::Image& image, const void* wrapper) {
  Registry& all = registry();
  Loaded* loaded = nullptr;
  {
    std::unique_lock lock(all.mutex);
    const auto found = all.by_wrapper.find(wrapper);
    if (found == all.by_wrapper.end() || !found->second->unasked) return nullptr;
    loaded = found->second;
    loaded->unasked = false;
    // Ends like the wait in ensure().
    all.changed.wait(lock, [loaded] { return loaded->state != State::kLoading; });
  }
  // Another shared object may have been mapped at the same place. After a failure, the program's
  // own load must report the reason.
  if (loaded->state == State::kReady && loaded->digest == protocol::bundle_digest(image)) {
    return loaded;
  }
  static_cast<void>(unload(here, loaded));
  return nullptr;
}

// Settles every image on every way out, so that no thread waits forever.
int submit_and_settle(const EntryContext& here, const std::vector<Loaded*>& batch,
                      JitRequest* jit) {
  const auto fail_rest = [&batch](int result) {
    for (Loaded* loaded : batch) {
      bool open = false;
      {
        const std::lock_guard lock(registry().mutex);
        open = loaded->state == State::kLoading;
      }
      if (open) settle(*loaded, result, nullptr, true);
    }
  };
  int earlier = 0;
  try {
    earlier = submit(here, batch, jit);
  } catch (...) {
    fail_rest(CUDA_ERROR_OUT_OF_MEMORY);
    throw;
  }
  fail_rest(CUDA_ERROR_UNKNOWN);
  return earlier;
}

// `wanted` and the images that may go along with it, marked as ours. Registry::mutex must be held.
std::vector<Loaded*> batch_of(Registry& all, Loaded* wanted) {
  std::vector<Loaded*> batch;
  // Reserve before any image is marked, for add_adjacent_images() too. An image that is marked but
  // in no batch would never be settled.
  batch.reserve(protocol::kLoadsMax);
  batch.push_back(wanted);
  wanted->state = State::kLoading;
  all.deferred.erase(wanted->handle);
  if (may_go_along(*wanted)) return batch;
  std::size_t bytes = 0;
  for (auto it = all.deferred.begin();
       it != all.deferred.end() && batch.size() < protocol::kLoadsMax;) {
    const std::uint64_t more = protocol::bundle_bytes(it->second->image);
    if (more > protocol::kInlineImageBytesMax || bytes + more > kCompanionBytesMax) {
      ++it;
      continue;
    }
    bytes += static_cast<std::size_t>(more);
    it->second->state = State::kLoading;
    batch.push_back(it->second);
    it = all.deferred.erase(it);
  }
  return batch;
}

// The end of a module prints the output of its kernels (Programming Guide, "Formatted Output"). If
// a wait has shown that all work of its context is complete, their output has come, and the end has
// nothing to wait for.
int unload_module(const EntryContext& here, CallSite site, Handle module) {
  site.work = Work::kNone;
  if (!here.session().known_complete(site.context)) {
    return call_row(here, opcode::cuModuleUnload, site, {}, module);
  }
  memory_returns.fetch_add(1, std::memory_order_relaxed);
  // Another thread may have waited, and the program sees what the device wrote before.
  here.session().take_device_writes(*here.lane);
  // No stream has work to wait for. So later loads wait for its end, and find its memory free.
  site.flags |= protocol::kFlagPassesStreams;
  return post_row(here, opcode::cuModuleUnload, site, {}, module);
}

}  // namespace

int load(EntryContext& here, HandleKind kind, const driver_abi::Image& image, JitRequest& jit,
         const void* preserved, Handle* handle) {
  const bool deferred = preserved != nullptr && jit.empty();
  if (deferred) {
    if (const Loaded* there = take_unasked(here, image, preserved); there != nullptr) {
      *handle = there->handle;
      return 0;
    }
  }
  auto made = std::make_unique<Loaded>();
  made->kind = kind;
  made->image = image;
  made->wrapper = preserved;
  // Libraries belong to no context (CUDA Driver API manual, "Library Management").
  const Handle context = kind == HandleKind::kModule ? here.context->handle : Handle{0};
  made->context = context;
  made->handle = here.handles().mint(kind, context, made.get());
  if (made->handle == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  Loaded* loaded = made.release();
  *handle = loaded->handle;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    all.alive.insert(loaded);
    if (preserved != nullptr) all.by_wrapper.emplace(preserved, loaded);
    if (deferred) all.deferred[loaded->handle] = loaded;
    if (!deferred) loaded->state = State::kLoading;
  }
  if (deferred) return 0;
  const int earlier = submit_and_settle(here, {loaded}, &jit);
  loaded->image = {};  // The program may free it now.
  if (loaded->failure == 0) return earlier;
  const int failure = loaded->failure;
  forget(here, loaded);
  *handle = 0;
  return failure;
}

int ensure(EntryContext& here, Loaded* loaded) {
  Registry& all = registry();
  for (;;) {
    std::vector<Loaded*> batch;
    {
      std::unique_lock lock(all.mutex);
      // No deadline, as a driver's load has none. The wait ends with the load of the thread that
      // marked it, because submit_and_settle() settles on every way out. That thread waits for the
      // worker at most until the session ends, which it does when the worker is silent for too
      // long.
      all.changed.wait(lock, [loaded] { return loaded->state != State::kLoading; });
      if (loaded->state == State::kReady) return 0;
      if (loaded->state == State::kFailed) return loaded->failure;
      batch = batch_of(all, loaded);
    }
    loaded->digest = protocol::bundle_digest(loaded->image);
    try {
      if (!may_go_along(*loaded) && known_table(here, *loaded) == nullptr) {
        add_adjacent_images(here, &batch);
      }
    } catch (const std::bad_alloc&) {  // Fewer images go along.
    }
    if (const int earlier = submit_and_settle(here, batch, nullptr); earlier != 0) return earlier;
  }
}

int unload(EntryContext& here, Loaded* loaded) {
  bool sent = false;
  {
    Registry& all = registry();
    std::unique_lock lock(all.mutex);
    // Ends like the wait in ensure().
    all.changed.wait(lock, [loaded] { return loaded->state != State::kLoading; });
    sent = loaded->state == State::kReady;
  }
  int result = 0;
  if (sent) {
    close_managed_variables(here, loaded->handle);
    CallSite site;
    site.order = Order::kOrderedHost;
    site.context = loaded->context;  // 0, for a library: after the calls of all contexts.
    result = loaded->kind == HandleKind::kLibrary
                 ? post_row(here, opcode::cuLibraryUnload, site, {}, loaded->handle)
                 : unload_module(here, site, loaded->handle);
  }
  forget(here, loaded);
  return result;
}

}  // namespace gpurun::client::interpose::modules
