// Questions: one function for each, in a file of its own.
#pragma once

#include <string>

#include "answer.h"

namespace gpurun::probe {

void ask_device(const std::string& libcuda, Answer* answer);
void ask_address_windows(const std::string& libcuda, Answer* answer);
void ask_virtual_memory(const std::string& libcuda, Answer* answer);
void ask_context_cost(const std::string& libcuda, Answer* answer);
void ask_launch_queue(const std::string& libcuda, Answer* answer);
void ask_blocking_calls(const std::string& libcuda, Answer* answer);
void ask_stream_values(const std::string& libcuda, Answer* answer);
void ask_capture_modes(const std::string& libcuda, Answer* answer);
void ask_kernel_parameters(const std::string& libcuda, Answer* answer);
void ask_host_memory(const std::string& libcuda, Answer* answer);
void ask_export_tables(const std::string& libcuda, Answer* answer);
void ask_sticky_errors(const std::string& libcuda, Answer* answer);
void ask_call_costs(const std::string& libcuda, Answer* answer);
void ask_wrong_calls(const std::string& libcuda, Answer* answer);
void ask_no_current_context(const std::string& libcuda, Answer* answer);
void ask_launch_shape(const std::string& libcuda, Answer* answer);
void ask_beyond_one_process(const std::string& libcuda, Answer* answer);

}  // namespace gpurun::probe
