// Arrays with elements that begin as zero bytes. The system gives a large one untouched memory: a
// page is first touched when an element in it is used.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <type_traits>

namespace gpurun {

// Allocates `count` elements of T. The initial value of T must be all zero bytes. Returns nullptr
// when there is no memory. free_zeroed() frees it.
template <typename T>
T* make_zeroed(std::size_t count) noexcept {
  static_assert(std::is_trivially_destructible_v<T> && std::is_standard_layout_v<T>);
  static_assert(alignof(T) <= alignof(std::max_align_t));
  return static_cast<T*>(std::calloc(count, sizeof(T)));
}

template <typename T>
void free_zeroed(T* array) noexcept {
  std::free(array);
}

}  // namespace gpurun
