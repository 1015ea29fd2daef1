// Module loads: loads of images. The bytes come in the record, as bulk, or are those of an earlier
// load.
//
// A load that the client waits for runs on a helper thread, because a driver may compile for
// minutes. It is answered with the table of kernels. Other loads run on the context's own thread.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "protocol/calls/call.h"
#include "protocol/calls/image_bundle.h"
#include "server/handlers/modules/jit_arguments.h"
#include "server/handlers/modules/kernel_facts.h"
#include "server/handlers/modules/module_state.h"
#include "server/handlers/modules/modules.h"
#include "server/handlers/modules/printing_images.h"
#include "server/handlers/state/handler_state.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/skipped_waits.h"

namespace gpurun::server {
namespace {

using protocol::ImageLoad;
using protocol::ImageOutcome;

constexpr int kErrorInvalidImage = CUDA_ERROR_INVALID_IMAGE;
// The bytes of a reply that tables leave for everything else.
constexpr std::size_t kReplyReserve = std::size_t{8} << 10;

class Load {
 public:
  Load(Call& call, const ImageLoad& load, ByteView bulk, std::size_t table_bytes_max)
      : call_(call),
        state_(HandlerState::of(call)),
        load_(load),
        image_(load.image.empty() ? bulk : load.image),  // Empty: the worker is expected to have
                                                         // the image.
        table_bytes_max_(table_bytes_max),
        kind_(call.header().opcode == driver_abi::find_row("cuLibraryLoadData")->opcode
                  ? HandleKind::kLibrary
                  : HandleKind::kModule) {}

  ImageOutcome run() {
    ImageOutcome outcome;
    ImageStore::Stored stored;
    outcome.result = find_image(&stored, &outcome);
    if (outcome.result == 0 && !outcome.missing) outcome.result = load_image(*stored, &outcome);
    // Only images that the driver took, so that a client cannot fill the disk with other bytes.
    const bool sent = !image_.empty() && outcome.result == 0;
    if (sent) state_.modules().images().keep_beyond(load_.digest, stored);
    if (!call_.awaited() && (outcome.result != 0 || outcome.missing)) {
      failure_ = outcome.result != 0 ? outcome.result : kErrorInvalidImage;
      (void)call_.handles().poison(load_.handle, kind_, failure_);
    }
    return outcome;
  }

  // After run(), for a load that the client does not wait for: 0, or the error for the program's
  // next fence. A library reports its error when it is used, because the program may not have used
  // it yet.
  int failure_to_tell() const { return kind_ == HandleKind::kModule ? failure_ : 0; }

 private:
  int find_image(ImageStore::Stored* stored, ImageOutcome* outcome) {
    ImageStore& images = state_.modules().images();
    if (image_.empty()) {
      *stored = images.find(load_.digest, &outcome->kept);
      if (*stored != nullptr) return 0;
      const bool offered = (call_.header().flags & protocol::kFlagBulkOnDemand) != 0;
      outcome->missing = !offered;
      if (!offered) return 0;
      // The client assumed that the worker has the image, and went on. Its later calls wait here.
      if (const int result = call_.fetch_bulk(); result != 0) return result;
      image_ = call_.bulk_payload();
    }
    // The digest must fit the bytes, so that no client can store other bytes under a digest.
    if (sha256(image_) != load_.digest) return kErrorInvalidImage;
    *stored = images.add(load_.digest, image_, &outcome->kept);
    return 0;
  }

  int load_image(const Bytes& bundle, ImageOutcome* outcome) {
    const Result<driver_abi::Image> image = protocol::open_bundle(bundle);
    if (!image.ok()) {
      spdlog::warn("a code image is refused: {}", image.status().to_string());
      return kErrorInvalidImage;
    }
    if (may_print(*image)) call_.executor().skipped_waits().forbid();
    const protocol::DriverImage code(*image);
    JitArguments jit(load_.options, load_.info_log_bytes, load_.error_log_bytes);
    void* loaded = nullptr;
    int result = driver_load(code.code(), jit, &loaded);
    outcome->info_log = jit.info_log();
    outcome->error_log = jit.error_log();
    if (result != 0) return result;
    result = call_.handles().bind(load_.handle, kind_, reinterpret_cast<std::uintptr_t>(loaded));
    if (result != 0) {
      driver_unload(loaded);
      return result;
    }
    if (kind_ == HandleKind::kModule && call_.header().context != 0) {
      state_.modules().own(call_.header().context, load_.handle, kind_);
    }
    if (call_.awaited()) {
      CUdevice device = 0;
      // Without a context: the first device.
      (void)GPURUN_DRIVER(state_.driver(), cuCtxGetDevice, &device);
      outcome->device = device;
      list_kernels(state_.driver(), kind_, loaded, device, table_bytes_max_, outcome);
    }
    return 0;
  }

  int driver_load(const void* code, JitArguments& jit, void** loaded) {
    const CudaDriver& driver = state_.driver();
    if (kind_ == HandleKind::kLibrary) {
      auto* library = reinterpret_cast<CUlibrary*>(loaded);
      return GPURUN_DRIVER(driver, cuLibraryLoadData, library, code, jit.options(), jit.values(),
                           jit.count(), nullptr, nullptr, 0u);
    }
    auto* module = reinterpret_cast<CUmodule*>(loaded);
    return GPURUN_DRIVER(driver, cuModuleLoadDataEx, module, code, jit.count(), jit.options(),
                         jit.values());
  }

  void driver_unload(void* loaded) {
    if (kind_ == HandleKind::kLibrary) {
      (void)GPURUN_DRIVER(state_.driver(), cuLibraryUnload, static_cast<CUlibrary>(loaded));
    } else {
      (void)GPURUN_DRIVER(state_.driver(), cuModuleUnload, static_cast<CUmodule>(loaded));
    }
  }

  Call& call_;
  HandlerState& state_;
  const ImageLoad& load_;
  ByteView image_;
  const std::size_t table_bytes_max_;
  const HandleKind kind_;
  int failure_ = 0;
};

int load_all(Call& call) {
  const auto loads = protocol::unpack_loads(call.payload());
  if (!loads.ok()) return kErrorInvalidValue;
  const ByteView bulk = call.bulk_payload();
  if (!bulk.empty() && loads->size() != 1) return kErrorInvalidValue;
  std::size_t log_bytes = 0;
  for (const ImageLoad& load : *loads) log_bytes += load.info_log_bytes + load.error_log_bytes;
  const std::size_t taken = kReplyReserve + log_bytes;
  if (taken > protocol::kReplyPayloadBytesMax) return kErrorInvalidValue;
  const std::size_t share = (protocol::kReplyPayloadBytesMax - taken) / loads->size();

  std::vector<ImageOutcome> outcomes;
  int failure = 0;
  for (const ImageLoad& each : *loads) {
    Load load(call, each, bulk, share);
    outcomes.push_back(load.run());
    if (load.failure_to_tell() == 0 || failure != 0) continue;
    failure = load.failure_to_tell();
    call.set_created(each.handle);
  }
  if (call.awaited()) call.set_reply(protocol::pack(std::span<const ImageOutcome>(outcomes)));
  return failure;
}

CallOutcome run_load(Call& call) {
  const bool own_thread = call.header().order == protocol::Order::kOrderedHost;
  if (call.awaited() || own_thread) return CallOutcome::park(&load_all);
  return CallOutcome::done(load_all(call));
}

}  // namespace

CallOutcome run_unload(Call& call) {
  const driver_abi::Row* row = driver_abi::find_row(call.header().opcode);
  protocol::UnpackedCall unpacked;
  if (row == nullptr || !unpacked.unpack(*row, call.payload()).ok()) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  const std::uint64_t handle = unpacked.word(0);
  // Forgotten first, so that no later call finds a function of a module that is ending.
  HandlerState::of(call).modules().end(handle, call.handles());
  return HandlerState::of(call).dispatch().run(call);
}

CallOutcome refuse_file(Call&) { return CallOutcome::done(kErrorNotSupported); }

void add_module_load_handlers(Handlers& handlers) {
  set_handler(handlers, "cuModuleLoad", &refuse_file);
  set_handler(handlers, "cuLibraryLoadFromFile", &refuse_file);
  set_handler(handlers, "cuModuleLoadDataEx", &run_load);
  set_handler(handlers, "cuLibraryLoadData", &run_load);
  set_handler(handlers, "cuModuleUnload", &run_unload);
  set_handler(handlers, "cuLibraryUnload", &run_unload);
}

}  // namespace gpurun::server
