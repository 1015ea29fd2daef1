// LaneRegistry: from a lane's number to the lane, for the thread that reads the log. Entry points
// do not use it.
#pragma once

#include <cstdint>

namespace gpurun::client {

class Lane;

// Returns nullptr for a number that no lane of this process ever had. Lanes are reused, never
// freed.
Lane* lane_of_id(std::uint32_t id) noexcept;
void for_each_lane(void (*visit)(Lane& lane, void* user), void* user);

// The client threads' side of the registry.
struct LaneRegistry {
  // Returns a lane for the calling thread, or nullptr when limits::kLanesMax are live.
  // Lane::current() calls it once in each thread.
  static Lane* take();
  // The pthread key's destructor. It clears the thread's state and makes the lane reusable.
  static void thread_ends(void* lane);
};

}  // namespace gpurun::client
