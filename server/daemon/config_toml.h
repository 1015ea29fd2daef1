// toml++ as gpurund reads its file with it: header only, without exceptions and assertions.
//
// toml++ 3.3 asserts of a text what only TOML keeps ("log = [}", parse_value()), and where assert()
// is off it tells the compiler to rely on it. Left out, it goes on to the error that it has for it.
#pragma once

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ASSERT(expression) static_cast<void>(0)
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
