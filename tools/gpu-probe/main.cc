// gpu-probe: asks a CUDA driver what its manual does not say, and records the answers.
//
// It opens the driver at run time and links nothing of CUDA. This process never opens the driver.
// Each question runs in a process of its own, so a crash or hang loses only that answer.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "check_calls.h"
#include "child.h"
#include "questions/questions.h"
#include "report.h"

namespace gpurun::probe {
namespace {

// Their limits add up to less than ten minutes.
constexpr Question kQuestions[] = {
    {"device", "What does the device say of itself, every attribute included?", 30, ask_device},
    {"address_windows", "Which fixed device addresses does the driver honour?", 30,
     ask_address_windows},
    {"virtual_memory", "What granularity has virtual memory, and what do its calls cost?", 30,
     ask_virtual_memory},
    {"context_cost", "What do contexts cost in time and device memory?", 30, ask_context_cost},
    {"launch_queue", "How many launches are taken before one blocks?", 60, ask_launch_queue},
    {"blocking_calls", "Which calls wait for an unrelated kernel?", 60, ask_blocking_calls},
    {"stream_values", "What releases a stream that waits for a value?", 30, ask_stream_values},
    {"capture_modes", "What does each capture mode prohibit?", 30, ask_capture_modes},
    {"kernel_parameters", "How are kernel parameters laid out, and where may kernels launch?", 30,
     ask_kernel_parameters},
    {"host_memory", "Do pinned and registered memory have equal addresses, at what cost?", 30,
     ask_host_memory},
    {"export_tables", "How large are the export tables, and what do the open entries answer?", 30,
     ask_export_tables},
    {"sticky_errors", "What does a faulting kernel do to its context?", 30, ask_sticky_errors},
    {"no_current_context", "Which calls work on a thread that has no current context?", 30,
     ask_no_current_context},
    {"launch_shape", "What do driver and runtime say of a launch of a bad shape?", 30,
     ask_launch_shape},
    {"call_costs", "What do calls cost?", 60, ask_call_costs},
    {"wrong_calls", "Which codes do wrong calls give, each in a process of its own?", 180,
     ask_wrong_calls},
    {"beyond_one_process", "What is left open, and why?", 5, ask_beyond_one_process},
};

struct Options {
  std::string libcuda = "libcuda.so.1";
  std::string json;
  std::string table;
  std::string only;
};

void usage(std::FILE* to) {
  std::fputs(
      "usage: gpu-probe [--libcuda PATH] [--json FILE] [--table FILE] [--only QUESTION] [--list]\n"
      "       gpu-probe --check-calls[-at-once] [FUNCTION]\n"
      "Asks the CUDA driver (default: libcuda.so.1 as the dynamic linker finds it) what gpurun's\n"
      "design assumes. Writes JSON and a table; without --table the table goes to stdout.\n"
      "GPU_PROBE_CUDART names the runtime that launch_shape loads (default: libcudart.so.13, 12).\n"
      "--check-calls makes the wrong calls of the table, many in one process, and compares their\n"
      "codes with the table's: for drivers that shall not crash. Exit status 1: some are wrong.\n",
      to);
}

bool parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    std::string* value = name == "--libcuda" ? &options->libcuda
                         : name == "--json"  ? &options->json
                         : name == "--table" ? &options->table
                         : name == "--only"  ? &options->only
                                             : nullptr;
    if (value == nullptr || i + 1 == argc) return false;
    *value = argv[++i];
  }
  return true;
}

int run_question(const Question& question, const std::string& libcuda, int fd) {
  Answer answer(fd);
  try {
    question.ask(libcuda, &answer);
  } catch (const MissingFunction& missing) {
    answer.unanswerable("the driver has no " + missing.name);
  } catch (const CallFailed& failed) {
    answer.unanswerable(failed.call + " gave " + std::to_string(static_cast<int>(failed.result)) +
                        " " + result_name(failed.result));
  }
  return 0;
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return true;
  std::fprintf(stderr, "gpu-probe: cannot write %s\n", path.c_str());
  return false;
}

int run(const Options& options) {
  std::vector<QuestionReport> reports;
  for (const Question& question : kQuestions) {
    if (!options.only.empty() && options.only != question.name) continue;
    const ChildResult result = run_child(question.seconds_max, [&question, &options](int fd) {
      return run_question(question, options.libcuda, fd);
    });
    reports.push_back(read_report(question, result.output, failure_of(result), result.seconds));
    std::fprintf(stderr, "gpu-probe: %-20s %-12s %s\n", question.name,
                 reports.back().status.c_str(), reports.back().reason.c_str());
  }
  if (reports.empty()) {
    std::fprintf(stderr, "gpu-probe: no question is called %s\n", options.only.c_str());
    return 2;
  }
  bool written = true;
  if (!options.json.empty())
    written = write_file(options.json, json_document(options.libcuda, reports));
  const std::string table = table_document(options.libcuda, reports);
  if (options.table.empty())
    std::fputs(table.c_str(), stdout);
  else
    written = write_file(options.table, table) && written;
  return written ? 0 : 1;
}

}  // namespace
}  // namespace gpurun::probe

int main(int argc, char** argv) {
  using namespace gpurun::probe;  // NOLINT
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const Question& question : kQuestions)
      std::printf("%-20s %s\n", question.name, question.asks);
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    usage(stdout);
    return 0;
  }
  const bool at_once = argc >= 2 && std::strcmp(argv[1], "--check-calls-at-once") == 0;
  if ((argc == 2 || argc == 3) && (at_once || std::strcmp(argv[1], "--check-calls") == 0))
    return check_calls("libcuda.so.1", argc == 3 ? argv[2] : "", at_once);
  Options options;
  if (!parse(argc, argv, &options)) {
    usage(stderr);
    return 2;
  }
  return run(options);
}
