// Atomic operations in the model, called for each instrumented operation.
#pragma once

#include <cstdint>
#include <functional>

namespace gpurun::model {

// The numbers of the compiler's memory orders (gcc: __ATOMIC_RELAXED and so on).
enum class Order : int { kRelaxed, kConsume, kAcquire, kRelease, kAcquireRelease, kSequential };

std::uint64_t atomic_load(const void* address, unsigned bytes, Order order, const void* pc);
void atomic_store(void* address, unsigned bytes, std::uint64_t value, Order order, const void* pc);
// `change` returns whether there is a next value. atomic_update() returns that result.
bool atomic_update(void* address, unsigned bytes, Order order, const void* pc, std::uint64_t* old,
                   const std::function<bool(std::uint64_t old, std::uint64_t* next)>& change);
void fence(Order order);

}  // namespace gpurun::model
