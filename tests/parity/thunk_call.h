// Thunk call: a call with the types of a prototype, from the header that declares it.
#pragma once

#include <cstddef>
#include <utility>

namespace thunk_call {

template <typename Result, typename... Arguments, std::size_t... Index>
int call(Result (*)(Arguments...), void* function, void* const* arguments,
         std::index_sequence<Index...>) {
  auto* typed = reinterpret_cast<Result (*)(Arguments...)>(function);
  (void)arguments;
  return typed(*static_cast<Arguments*>(arguments[Index])...);
}

template <typename Result, typename... Arguments>
int call(Result (*type)(Arguments...), void* function, void* const* arguments) {
  return call(type, function, arguments, std::index_sequence_for<Arguments...>());
}

}  // namespace thunk_call
