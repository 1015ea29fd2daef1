// Cap'n Proto 0.9 for clang in C++20: the comparisons that its headers lack. Every file that clang
// compiles includes this header first. The library lets the compiler reverse the operands of a
// comparison of text with a kj string. The compiler may do so only for a class without operator!=
// (P2468), and kj's class has one.
#pragma once

#if defined(__cplusplus) && defined(__clang__) && __has_include(<kj/string.h>)
#include <kj/string.h>

namespace kj {
inline bool operator==(const char* a, const StringPtr& b) { return b == StringPtr(a); }
inline bool operator!=(const char* a, const StringPtr& b) { return b != StringPtr(a); }
inline bool operator==(const char* a, const String& b) { return StringPtr(b) == StringPtr(a); }
inline bool operator!=(const char* a, const String& b) { return StringPtr(b) != StringPtr(a); }
}  // namespace kj
#endif
