// Report: the two documents.
#include "report.h"

#include <algorithm>
#include <cstdio>

namespace gpurun::probe {
namespace {

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", seconds);
  return text;
}

// Several processes write wrong calls at once. Their numbers give the order.
void sort_calls(QuestionReport* report) {
  std::stable_sort(report->facts.begin(), report->facts.end(), [](const auto& a, const auto& b) {
    const bool both = a.first.rfind("call.", 0) == 0 && b.first.rfind("call.", 0) == 0;
    return both && a.first < b.first;
  });
}

}  // namespace

QuestionReport read_report(const Question& question, const std::string& lines,
                           const std::string& failure, double seconds) {
  QuestionReport report;
  report.question = &question;
  report.seconds = seconds;
  std::string unanswerable;
  std::size_t start = 0;
  while (start < lines.size()) {
    std::size_t end = lines.find('\n', start);
    if (end == std::string::npos) break;  // The process died while writing this line.
    const std::string line = lines.substr(start, end - start);
    start = end + 1;
    const std::size_t tab = line.find('\t');
    if (line.rfind("U ", 0) == 0) {
      unanswerable = line.substr(2);
    } else if (line.rfind("F ", 0) == 0 && tab != std::string::npos) {
      report.facts.emplace_back(line.substr(2, tab - 2), line.substr(tab + 1));
    }
  }
  sort_calls(&report);
  report.reason = failure.empty() ? unanswerable : failure;
  if (!failure.empty() && !unanswerable.empty()) report.reason += "; " + unanswerable;
  report.status = report.reason.empty()                     ? "answered"
                  : report.facts.empty() || failure.empty() ? "unanswerable"
                                                            : "partly";
  return report;
}

std::string json_document(const std::string& libcuda, const std::vector<QuestionReport>& reports) {
  std::string out =
      "{\n  \"format\": 1,\n  \"library\": " + Json::text(libcuda).str() + ",\n  \"questions\": [";
  for (const QuestionReport& report : reports) {
    out += &report == &reports.front() ? "\n" : ",\n";
    out += "    {\n      \"name\": " + Json::text(report.question->name).str() +
           ",\n      \"asks\": " + Json::text(report.question->asks).str() +
           ",\n      \"status\": " + Json::text(report.status).str() +
           ",\n      \"reason\": " + Json::text(report.reason).str() +
           ",\n      \"seconds\": " + seconds_text(report.seconds) + ",\n      \"facts\": {";
    bool first = true;
    for (const auto& [name, value] : report.facts) {
      out += (first ? "\n        " : ",\n        ") + Json::text(name).str() + ": " + value;
      first = false;
    }
    out += "\n      }\n    }";
  }
  return out + "\n  ]\n}\n";
}

std::string table_document(const std::string& libcuda, const std::vector<QuestionReport>& reports) {
  std::string out = "gpu-probe of " + libcuda + "\n\n";
  for (const QuestionReport& report : reports) {
    out += std::string(report.question->name) + ": " + report.status + " (" +
           seconds_text(report.seconds) + " s)";
    if (!report.reason.empty()) out += ": " + report.reason;
    out += "\n  " + std::string(report.question->asks) + "\n";
    std::size_t widest = 0;
    for (const auto& [name, value] : report.facts) widest = std::max(widest, name.size());
    for (const auto& [name, value] : report.facts) {
      out += "    " + name + std::string(widest - name.size() + 2, ' ') + value + "\n";
    }
    out += "\n";
  }
  return out;
}

}  // namespace gpurun::probe
