// ArenaMapping: the mappings of this process, and the messages to the worker.
#include "client/interpose/memory/arena_mapping.h"

#include <sys/mman.h>

#include <utility>

#include "client/host_memory/write_watch.h"
#include "client/interpose/call/host_memory_choice.h"
#include "client/process/thread.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

using protocol::HostBlock;
using protocol::HostBlockKind;

void* pointer_to(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// Memory of this process alone, of zeros, at exactly the block's address. A hint in place of a
// fixed address, as for a file's blocks.
int map_own(const ArenaBlocks::Block& block, int access) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (access == PROT_NONE ? MAP_NORESERVE : 0);
  void* const got = mmap(pointer_to(block.address), block.bytes, access, flags, -1, 0);
  if (got == pointer_to(block.address)) return 0;
  if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  munmap(got, block.bytes);
  return CUDA_ERROR_ALREADY_MAPPED;
}

HostBlock message(HostBlockKind kind, const ArenaBlocks::Block& block, const ArenaPlace& place) {
  HostBlock payload;
  payload.kind = kind;
  payload.address = block.address;
  payload.offset = block.address - place.base;
  payload.bytes = block.bytes;
  payload.span = place.span;
  return payload;
}

// Runs `body` on a thread of ours, with its signals blocked, because no child may be made
// meanwhile.
template <typename Body>
Status on_thread(Body body) {
  Thread thread;
  GPURUN_RETURN_IF_ERROR(thread.start(
      "gpurun-arena",
      [](void* of) -> void* {
        (*static_cast<Body*>(of))();
        return nullptr;
      },
      &body));
  thread.join();
  return {};
}

// Returns the worker's CUresult.
int map_in_worker(const EntryContext& here, std::uint16_t code, const HostBlock& payload,
                  Handle context, int* earlier) {
  CallSite site = here.passing_site();
  site.opcode = code;
  site.form = protocol::Form::kRaw;
  site.context = context;
  site.work = Work::kNone;
  Reply reply;
  reply.result = -1;  // Not answered.
  const int result = here.session().call(*here.lane, site, bytes_of(payload), &reply);
  if (result != reply.result && *earlier == 0) *earlier = result;
  return reply.result;
}

Session::MirrorMode mirror_mode() noexcept {
  switch (host_memory_choice()) {
    case HostMemoryChoice::kCompared:
      return Session::MirrorMode::kCompared;
    case HostMemoryChoice::kChecked:
      return Session::MirrorMode::kChecked;
    default:
      return Session::MirrorMode::kNoted;
  }
}

// Returns the failure of an earlier call, or 0.
int unmap_in_worker(const EntryContext& here, const HostBlock& payload, Handle context) {
  CallSite site = here.passing_site();
  site.opcode = opcode::cuMemFreeHost;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kOrderedHost;
  site.context = context;
  site.work = Work::kNone;
  Reply reply;
  const int result = here.session().call(*here.lane, site, bytes_of(payload), &reply);
  return reply.result == 0 ? result : 0;
}

}  // namespace

bool open_host_mirror(Session& session) {
  return on_thread([&] { session.open_host_mirror(mirror_mode()); }).ok();
}

Status ArenaMapping::open(Session& session) {
  mirrored_ = session.mirrors_all_host_memory();
  if (mirrored_) return {};
  Status status;
  const auto make = [&] {
    Result<ArenaFile> made = ArenaFile::make(limits::kHostArenaBytes, session.descriptor_min());
    status = made.status();
    if (!made.ok()) return;
    file_ = *std::move(made);
    status = session.offer_host_memory(file_.fd());
  };
  GPURUN_RETURN_IF_ERROR(on_thread(make));
  return status;
}

int ArenaMapping::map(const EntryContext& here, std::uint16_t code, const Block& block,
                      const ArenaPlace& place, int* earlier) const {
  if (mirrored_) return map_own(block, PROT_READ | PROT_WRITE);
  const Status mapped = file_.map(block.address, block.address - place.base, block.bytes);
  if (mapped.code() == Code::kUnavailable) return CUDA_ERROR_ALREADY_MAPPED;
  if (!mapped.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  const int result =
      map_in_worker(here, code, message(HostBlockKind::kMap, block, place), block.context, earlier);
  if (result != 0) ArenaFile::unmap(block.address, block.bytes);
  return result;
}

int ArenaMapping::reserve(const Block& block) { return map_own(block, PROT_NONE); }

int ArenaMapping::make_copy(const EntryContext& here, std::uint16_t code, const Block& block,
                            const ArenaPlace& place, std::uint64_t memory, int* earlier) {
  if (!mirror_is_open_ && !open_host_mirror(here.session())) return CUDA_ERROR_OUT_OF_MEMORY;
  mirror_is_open_ = true;
  const int result = map_in_worker(here, code, message(HostBlockKind::kMirror, block, place),
                                   block.context, earlier);
  if (result != 0) return result;
  const bool noted = memory == block.address || is_private_memory(memory, block.bytes);
  auto* const start = reinterpret_cast<std::byte*>(memory);
  if (here.session().add_host_mirror(block.address, block.bytes, start, noted)) return 0;
  (void)unmap_in_worker(here, message(HostBlockKind::kUnmap, block, place), block.context);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

int ArenaMapping::unmap(const EntryContext& here, const Block& block, const ArenaPlace& place,
                        BlockMemory memory) {
  int earlier = 0;
  if (memory == BlockMemory::kCopied || memory == BlockMemory::kView) {
    here.session().remove_host_mirror(block.address);
  }
  if (memory != BlockMemory::kPrivate) {
    earlier = unmap_in_worker(here, message(HostBlockKind::kUnmap, block, place), block.context);
  }
  unmap_here(block, memory);
  return earlier;
}

void ArenaMapping::unmap_here(const Block& block, BlockMemory memory) {
  if (memory == BlockMemory::kShared) {
    ArenaFile::unmap(block.address, block.bytes);
  } else {
    munmap(pointer_to(block.address), block.bytes);
  }
}

}  // namespace gpurun::client::interpose
