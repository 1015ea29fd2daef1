// Read before every file that clang compiles: what Cap'n Proto 0.9's headers lack for clang in
// C++20. They leave the comparison of text with a kj string to the compiler, which may turn
// operands around only where the class has no operator!= (P2468); theirs has one.
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
