// Order between the streams of a context.
#include "emulated/objects/context.h"

#include <utility>

namespace gpurun::emulated {

Context::Context(Device& device, unsigned flags_, bool primary)
    : ContextState(kKind, device), flags(flags_), primary_(primary) {
  if (!primary) active_ = true;
}

StreamPtr Context::legacy_stream() {
  {
    const std::shared_lock lock(streams_mutex_);
    if (legacy_ != nullptr) return legacy_;
  }
  const std::unique_lock lock(streams_mutex_);
  if (legacy_ == nullptr) legacy_ = std::make_shared<Stream>(shared_from_this(), *this, 0, 0);
  return legacy_;
}

StreamPtr Context::create_stream(unsigned stream_flags, int priority) {
  auto stream = std::make_shared<Stream>(shared_from_this(), *this, stream_flags, priority);
  Stream::Dependency awaited;
  {
    const std::unique_lock lock(streams_mutex_);
    std::erase_if(streams_, [](const auto& known) { return known.expired(); });
    streams_.push_back(stream);
    if (awaited_.stream != nullptr && awaited_.stream->reached(awaited_.position)) awaited_ = {};
    awaited = awaited_;
  }
  if (awaited.stream != nullptr) delay(*stream, awaited);
  return stream;
}

void Context::delay(Stream& stream, const Stream::Dependency& earlier) {
  stream.enqueue(std::make_shared<FunctionOperation>([] { return CUDA_SUCCESS; }), {earlier});
}

void Context::wait_for(const Stream::Dependency& earlier) {
  legacy_stream();  // Blocking streams wait for it, also those that are made later.
  {
    const std::unique_lock lock(streams_mutex_);
    awaited_ = earlier;
  }
  for (const StreamPtr& stream : live_streams()) {
    if (stream != earlier.stream) delay(*stream, earlier);
  }
}

std::uint64_t issue_between(const std::vector<ContextPtr>& contexts, const StreamPtr& stream,
                            OperationPtr operation) {
  std::vector<Stream::Dependency> earlier;
  for (const ContextPtr& context : contexts) {
    for (StreamPtr& other : context->live_streams()) {
      if (other == stream || other->is_idle()) continue;
      const std::uint64_t position = other->position();
      earlier.push_back({std::move(other), position});
    }
  }
  const std::uint64_t position = stream->enqueue(std::move(operation), std::move(earlier));
  for (const ContextPtr& context : contexts) context->wait_for({stream, position});
  return position;
}

std::vector<StreamPtr> Context::live_streams() {
  std::vector<StreamPtr> live;
  const std::shared_lock lock(streams_mutex_);
  if (legacy_ != nullptr) live.push_back(legacy_);
  for (const auto& known : streams_) {
    if (auto stream = known.lock()) live.push_back(std::move(stream));
  }
  return live;
}

CUresult Context::issue(const StreamPtr& stream, OperationPtr operation, std::uint64_t* position) {
  std::vector<Stream::Dependency> dependencies;
  if (stream->is_blocking()) {
    const std::shared_lock lock(streams_mutex_);
    if (stream == legacy_) {
      for (const auto& known : streams_) {
        auto other = known.lock();
        if (other != nullptr && other->is_blocking() && !other->is_idle()) {
          const std::uint64_t reached = other->position();
          dependencies.push_back({std::move(other), reached});
        }
      }
    } else if (legacy_ != nullptr && !legacy_->is_idle()) {
      dependencies.push_back({legacy_, legacy_->position()});
    }
  }
  const std::uint64_t at = stream->enqueue(std::move(operation), std::move(dependencies));
  if (position != nullptr) *position = at;
  return at == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

bool Context::could_start(const Stream& stream) {
  if (!stream.is_idle()) return false;
  if (!stream.is_blocking()) return true;
  const std::shared_lock lock(streams_mutex_);
  if (&stream != legacy_.get()) return legacy_ == nullptr || legacy_->is_idle();
  for (const auto& known : streams_) {
    const auto other = known.lock();
    if (other != nullptr && other->is_blocking() && !other->is_idle()) return false;
  }
  return true;
}

CUresult Context::synchronize() {
  for (const auto& stream : live_streams()) stream->wait_for(stream->position());
  flush_output();
  return sticky_error();
}

void Context::keep_while_busy(std::shared_ptr<const void> object) {
  std::vector<Stream::Dependency> busy;
  for (StreamPtr& stream : live_streams()) {
    if (stream->is_idle()) continue;
    const std::uint64_t position = stream->position();
    busy.push_back({std::move(stream), position});
  }
  if (busy.empty()) return;
  // On a stream of its own, so that nothing waits for this.
  const auto aside = std::make_shared<Stream>(shared_from_this(), *this, CU_STREAM_NON_BLOCKING, 0);
  aside->enqueue(std::make_shared<FunctionOperation>(
                     [kept = std::move(object)]() mutable {
                       kept.reset();
                       return CUDA_SUCCESS;
                     },
                     true),
                 std::move(busy));
}

bool Context::enable_peer(const Context& peer) {
  const std::lock_guard lock(mutex_);
  return peers_.insert(peer.handle()).second;
}

bool Context::disable_peer(const Context& peer) {
  const std::lock_guard lock(mutex_);
  return peers_.erase(peer.handle()) != 0;
}

void Context::own(const Object& object) {
  const std::lock_guard lock(mutex_);
  owned_.insert(object.handle());
}

void Context::disown(const Object& object) {
  const std::lock_guard lock(mutex_);
  owned_.erase(object.handle());
}

std::set<std::uint64_t> Context::take_owned() {
  std::set<std::uint64_t> owned;
  {
    const std::lock_guard lock(mutex_);
    owned.swap(owned_);
    peers_.clear();
  }
  drop_runtime();
  return owned;
}

void Context::renew() {
  const std::unique_lock lock(streams_mutex_);
  streams_.clear();
  legacy_.reset();
  awaited_ = {};
  forget_error();
}

}  // namespace gpurun::emulated
