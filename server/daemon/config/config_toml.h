// toml++ for gpurund's configuration file: header only, without exceptions and assertions.
//
// In toml++ 3.3 and 3.4.0, an assertion (parse_value()) fails for some invalid texts ("log = [}").
// Where assert() is off, toml++ tells the compiler to rely on it. Without the assertion, toml++
// reports its own error for such a text.
#pragma once

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ASSERT(expression) static_cast<void>(0)
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")
