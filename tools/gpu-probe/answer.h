// Answer: the facts that a question finds, as JSON. They are written one by one, so that a crash of
// the driver loses only later ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "driver.h"

namespace gpurun::probe {

// A JSON value in text form. It needs no library on the machine under test.
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
  // A CUDA result code, with its name when this program knows it: "1 CUDA_ERROR_INVALID_VALUE".
  static Json result(CUresult result);
  static Json address(std::uint64_t value);  // "0x7f00"
  // Text that is JSON already, on one line.
  static Json raw(std::string json);

  const std::string& str() const { return json_; }

 private:
  explicit Json(std::string json) : json_(std::move(json)) {}
  std::string json_;
};

// The output of a question: lines on a pipe to the parent, "F name json" or "U reason".
class Answer {
 public:
  explicit Answer(int fd) : fd_(fd) {}
  void fact(const std::string& name, const Json& value);
  // The question, or the named part of it, cannot be answered here.
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

// "CUDA_ERROR_INVALID_VALUE", or "?" for an unknown number.
const char* result_name(CUresult result);

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace gpurun::probe
