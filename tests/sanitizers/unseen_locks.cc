// unseen_locks: two threads use the same bytes by functions that ThreadSanitizer does not see into,
// as it does not see into OpenSSL. It sees the memcpy of both.
//
// usage: unseen_locks table|other      (a function with a name of OpenSSL's table, or another)
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>

namespace {

char shared[64];

}  // namespace

extern "C" {

// Without tail calls, because the name must be in the stack.
__attribute__((noinline, no_sanitize("thread"))) void ossl_ht_of_test(char byte) {
  char bytes[sizeof shared] = {byte};
  std::memcpy(shared, bytes, sizeof shared);
  asm volatile("" ::: "memory");
}

__attribute__((noinline, no_sanitize("thread"))) void other_table_of_test(char byte) {
  char bytes[sizeof shared] = {byte};
  std::memcpy(shared, bytes, sizeof shared);
  asm volatile("" ::: "memory");
}
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto* const use = argv[1] == std::string_view("table") ? &ossl_ht_of_test : &other_table_of_test;
  std::thread one(use, 'a'), two(use, 'b');
  one.join();
  two.join();
  std::puts("PASSED");
  return 0;
}
