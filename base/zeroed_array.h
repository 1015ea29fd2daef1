// Arrays whose elements begin as zero bytes. A large one is memory as the system gives it: no page
// of it is touched before an element there is used.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <type_traits>

namespace gpurun {

// `count` elements of T, whose initial value must be all zero bytes; nullptr: no memory. Freed by
// free_zeroed().
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
