// Wiped keys: keys that have ended cannot be read from this process's memory later.
#include "server/daemon/users/wiped_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <new>
#include <utility>

namespace gpurun::server {
namespace {

protocol::Key a_key() {
  protocol::Key key;
  key.fill(0xa5);
  return key;
}

TEST(WipedKey, DestructorWipesItsMemory) {
  alignas(WipedKey) std::array<std::byte, sizeof(WipedKey)> place{};
  auto* const key = new (place.data()) WipedKey(a_key());
  const WipedKey copy = *key;
  EXPECT_EQ(key->get(), a_key());
  ASSERT_EQ(std::count(place.begin(), place.end(), std::byte{0xa5}), 32);
  key->~WipedKey();
  EXPECT_EQ(std::count(place.begin(), place.end(), std::byte{0xa5}), 0);
  EXPECT_EQ(copy.get(), a_key());
}

TEST(WipedKey, ConstructorWipesSourceKey) {
  protocol::Key temporary = a_key();
  const WipedKey key(std::move(temporary));
  EXPECT_EQ(key.get(), a_key());
  EXPECT_EQ(temporary, protocol::Key{});  // NOLINT(bugprone-use-after-move): it is wiped.
}

}  // namespace
}  // namespace gpurun::server
