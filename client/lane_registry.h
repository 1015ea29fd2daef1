// The way of who reads the log from a lane's number to the lane. Not for the entry points.
#pragma once

#include <cstdint>

namespace gpurun::client {

class Lane;

// nullptr for a number that no lane of this process ever had. Lanes are never freed, only reused.
Lane* lane_of_id(std::uint32_t id) noexcept;
void for_each_lane(void (*visit)(Lane& lane, void* user), void* user);

// The threads' side of it.
struct LaneRegistry {
  // A lane for the calling thread; nullptr: limits::kLanesMax live. Lane::current() is the one that
  // asks, once a thread.
  static Lane* take();
  // The pthread key's destructor: what the thread kept is forgotten, the lane is used again.
  static void thread_ends(void* lane);
};

}  // namespace gpurun::client
