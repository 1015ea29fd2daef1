// What a question finds out: facts as JSON, written down one by one so that those before a crash of
// the driver are kept.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "driver.h"

namespace gpurun::probe {

// A JSON value in text form. Small enough to need no library on the machine under examination.
class Json {
 public:
  static Json text(std::string_view value);
  static Json number(double value);
  static Json integer(std::int64_t value);
  static Json boolean(bool value);
  static Json null();
  static Json list(const std::vector<Json>& items);
  // Names must not repeat.
  static Json object(const std::vector<std::pair<std::string, Json>>& members);
  // A number of CUDA's, with its name where this program knows it: "1 CUDA_ERROR_INVALID_VALUE".
  static Json result(CUresult result);
  static Json address(std::uint64_t value);  // "0x7f00"
  // Text that already is JSON, of one line.
  static Json raw(std::string json);

  const std::string& str() const { return json_; }

 private:
  explicit Json(std::string json) : json_(std::move(json)) {}
  std::string json_;
};

// Where a question writes. Lines on a pipe to the parent: "F name json", "U reason".
class Answer {
 public:
  explicit Answer(int fd) : fd_(fd) {}
  void fact(const std::string& name, const Json& value);
  // The question, or the named part of it, cannot be answered here, and why.
  void unanswerable(const std::string& reason);

 private:
  void write_line(const std::string& line);
  int fd_;
};

// One question: a file of this folder.
struct Question {
  const char* name;
  const char* asks;  // One sentence.
  int seconds_max;   // It is killed after this long.
  void (*ask)(const std::string& libcuda, Answer* answer);
};

// "CUDA_ERROR_INVALID_VALUE", or "?" for a number that is not known here.
const char* result_name(CUresult result);

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace gpurun::probe
