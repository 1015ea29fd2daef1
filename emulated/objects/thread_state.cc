// Per-thread state behind a pthread key, which ends it for threads but not for the main thread.
#include "emulated/objects/thread_state.h"

#include <pthread.h>

namespace gpurun::emulated {
namespace {

// Trivially destructible on purpose, because a thread_local object would be gone in exit handlers.
thread_local ThreadState* current_state = nullptr;

pthread_key_t state_key() {
  static const pthread_key_t key = [] {
    pthread_key_t made;
    pthread_key_create(&made, [](void* state) {
      current_state = nullptr;
      delete static_cast<ThreadState*>(state);
    });
    return made;
  }();
  return key;
}

}  // namespace

ThreadState& thread_state() {
  if (current_state == nullptr) {
    current_state = new ThreadState;
    pthread_setspecific(state_key(), current_state);
  }
  return *current_state;
}

const ContextPtr& ThreadState::current() const {
  static const ContextPtr* none = new ContextPtr;
  return contexts.empty() ? *none : contexts.back();
}

StreamPtr ThreadState::default_stream(const ContextPtr& context) {
  StreamPtr& stream = default_streams[context->id()];
  if (stream == nullptr) stream = context->create_stream(CU_STREAM_DEFAULT, 0);
  return stream;
}

}  // namespace gpurun::emulated
