// Report: all answers as one JSON file for programs and one table for people.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "answer.h"

namespace gpurun::probe {

struct QuestionReport {
  const Question* question = nullptr;
  // "answered", "partly" (it ended badly after some facts), or "unanswerable".
  std::string status;
  std::string reason;  // Empty when answered.
  double seconds = 0;
  std::vector<std::pair<std::string, std::string>> facts;  // Name and JSON, in order.
};

// Reads the lines that a question's process wrote. `failure` says how the process ended, if badly.
QuestionReport read_report(const Question& question, const std::string& lines,
                           const std::string& failure, double seconds);

std::string json_document(const std::string& libcuda, const std::vector<QuestionReport>& reports);
std::string table_document(const std::string& libcuda, const std::vector<QuestionReport>& reports);

}  // namespace gpurun::probe
