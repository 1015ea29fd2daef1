// Answer: JSON text, and the lines from a question's process to its parent.
#include "answer.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "driver_abi/error_codes.h"

namespace gpurun::probe {

Json Json::text(std::string_view value) {
  std::string out = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      out += escaped;
    } else {
      out += c;
    }
  }
  return Json(out + "\"");
}

Json Json::number(double value) {
  if (!std::isfinite(value)) return null();
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return Json(text);
}

Json Json::integer(std::int64_t value) { return Json(std::to_string(value)); }
Json Json::boolean(bool value) { return Json(value ? "true" : "false"); }
Json Json::null() { return Json("null"); }
Json Json::raw(std::string json) { return Json(std::move(json)); }

Json Json::list(const std::vector<Json>& items) {
  std::string out = "[";
  for (const Json& item : items) out += (out.size() > 1 ? ", " : "") + item.str();
  return Json(out + "]");
}

Json Json::object(const std::vector<std::pair<std::string, Json>>& members) {
  std::string out = "{";
  for (const auto& [name, value] : members)
    out += (out.size() > 1 ? ", " : "") + text(name).str() + ": " + value.str();
  return Json(out + "}");
}

Json Json::result(CUresult result) {
  return text(std::to_string(static_cast<int>(result)) + " " + result_name(result));
}

Json Json::address(std::uint64_t value) {
  char out[32];
  std::snprintf(out, sizeof out, "0x%llx", static_cast<unsigned long long>(value));
  return text(out);
}

const char* result_name(CUresult result) {
  const char* name = driver_abi::error_name(result);
  return name == nullptr ? "?" : name;
}

void Answer::write_line(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(fd_, rest.data(), rest.size());
    if (written <= 0) return;  // The parent has closed the pipe.
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Answer::fact(const std::string& name, const Json& value) {
  write_line("F " + name + "\t" + value.str() + "\n");
}

void Answer::unanswerable(const std::string& reason) { write_line("U " + reason + "\n"); }

}  // namespace gpurun::probe
