// Device printf: one conversion after the other, by the host's snprintf with bounded widths.
#include "emulated/runtime/print.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace gpurun::emulated {

namespace {

constexpr std::size_t kStringBytesMax = 64 * 1024;
constexpr int kWidthMax = 4096;                  // More is a bug, or an attack on our memory.
constexpr std::size_t kTextBytesMax = 1u << 20;  // Of one call.

class Arguments {
 public:
  explicit Arguments(const std::uint8_t* at) : at_(at) {}

  template <typename T>
  T take() {
    offset_ = (offset_ + sizeof(T) - 1) & ~(sizeof(T) - 1);
    T value;
    std::memcpy(&value, at_ + offset_, sizeof value);
    offset_ += sizeof value;
    ++count_;
    return value;
  }
  int count() const { return count_; }

 private:
  const std::uint8_t* const at_;
  std::size_t offset_ = 0;
  int count_ = 0;
};

struct Conversion {
  std::string flags;
  int width = -1;
  int precision = -1;
  bool wide = false;  // l, ll, z, j, t: 8 bytes.
  int narrow = 0;     // Number of h.
  char type = 0;
};

int number(const char*& at) {
  int value = 0;
  while (*at >= '0' && *at <= '9') value = std::min(value * 10 + (*at++ - '0'), kWidthMax);
  return value;
}

// Parses what follows '%'. False at the end of the string.
bool parse(const char*& at, Arguments& arguments, Conversion* out) {
  while (*at != 0 && std::strchr("-+ #0", *at) != nullptr) {
    if (out->flags.size() < 8) out->flags += *at;
    ++at;
  }
  if (*at == '*') {
    ++at;
    int width = arguments.take<std::int32_t>();
    if (width < 0) {
      out->flags += '-';
      width = width < -kWidthMax ? kWidthMax : -width;
    }
    out->width = std::min(width, kWidthMax);
  } else if (*at >= '0' && *at <= '9') {
    out->width = number(at);
  }
  if (*at == '.') {
    ++at;
    if (*at == '*') {
      ++at;
      out->precision = std::min(arguments.take<std::int32_t>(), kWidthMax);
    } else {
      out->precision = number(at);
    }
  }
  while (*at != 0 && std::strchr("hlqjzt", *at) != nullptr) {
    if (*at == 'h') {
      ++out->narrow;
    } else {
      out->wide = true;
    }
    ++at;
  }
  out->type = *at;
  if (*at == 0) return false;
  ++at;
  return true;
}

template <typename T>
void append(const Conversion& conversion, const char* length, T value, std::string* text) {
  std::string format = "%" + conversion.flags;
  if (conversion.width >= 0) format += std::to_string(conversion.width);
  if (conversion.precision >= 0) format += "." + std::to_string(conversion.precision);
  format += length;
  format += conversion.type;
  char small[128];
  // The format is built above from checked parts only.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int bytes = std::snprintf(small, sizeof small, format.c_str(), value);
  if (bytes < 0) return;
  if (static_cast<std::size_t>(bytes) < sizeof small) {
    text->append(small, static_cast<std::size_t>(bytes));
    return;
  }
  const std::size_t start = text->size();
  text->resize(start + static_cast<std::size_t>(bytes) + 1);
  std::snprintf(text->data() + start, static_cast<std::size_t>(bytes) + 1, format.c_str(), value);
  text->resize(start + static_cast<std::size_t>(bytes));
#pragma GCC diagnostic pop
}

void append_integer(const Conversion& conversion, Arguments& arguments, std::string* text) {
  const bool is_signed = conversion.type == 'd' || conversion.type == 'i';
  if (conversion.wide) {
    append(conversion, "ll", arguments.take<long long>(), text);
    return;
  }
  std::int32_t value = arguments.take<std::int32_t>();
  if (conversion.narrow == 1) {
    value = is_signed ? static_cast<std::int16_t>(value) : static_cast<std::uint16_t>(value);
  } else if (conversion.narrow > 1) {
    value = is_signed ? static_cast<std::int8_t>(value) : static_cast<std::uint8_t>(value);
  }
  append(conversion, "", value, text);
}

// False: CUDA knows no such conversion.
bool convert(const Conversion& conversion, Arguments& arguments, std::string* text) {
  switch (conversion.type) {
    case 'd':
    case 'i':
    case 'o':
    case 'u':
    case 'x':
    case 'X':
      append_integer(conversion, arguments, text);
      return true;
    case 'c':
      append(conversion, "", arguments.take<std::int32_t>(), text);
      return true;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case 'a':
    case 'A':
      append(conversion, "", arguments.take<double>(), text);
      return true;
    case 'p':
      append(conversion, "", reinterpret_cast<const void*>(arguments.take<std::uint64_t>()), text);
      return true;
    case 's': {
      const auto address = arguments.take<std::uint64_t>();
      const std::string value = address == 0 ? "(null)" : bounded_device_string(address);
      append(conversion, "", value.c_str(), text);
      return true;
    }
    default:
      return false;
  }
}

}  // namespace

std::string bounded_device_string(std::uint64_t address) {
  const auto* string = reinterpret_cast<const char*>(address);
  return std::string(string, strnlen(string, kStringBytesMax));
}

int format_device_print(const char* format, const std::uint8_t* arguments, std::string* text) {
  Arguments packed(arguments);
  for (const char* at = format; *at != 0 && text->size() < kTextBytesMax;) {
    if (*at != '%') {
      *text += *at++;
      continue;
    }
    ++at;
    if (*at == '%') {
      *text += *at++;
      continue;
    }
    Conversion conversion;
    if (!parse(at, packed, &conversion) || !convert(conversion, packed, text)) return -1;
  }
  return packed.count();
}

}  // namespace gpurun::emulated
