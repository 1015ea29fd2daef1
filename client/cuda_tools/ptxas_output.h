// PtxasOutput: adds the PTX that a ptxas has read to the machine code that it has written.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace gpurun::client::cuda_tools {

// What a command line of ptxas reads and writes. Its other words mean nothing here.
struct PtxasCommand {
  std::string output;                // "": none is named, as with --version.
  std::vector<std::string> files;    // Words that may be input files.
  std::vector<std::string> strings;  // PTX in the command line itself (--input-as-string).
};

// `words`: without the program's name. A file of options (--options-file) is read.
PtxasCommand parse_ptxas_command(const std::vector<std::string>& words);

// For a ptxas that has succeeded. Replaces the content of the output file. Does nothing for an
// output that is no machine code, or without PTX among the inputs. A failure names the file.
Status add_ptx_to_output(const PtxasCommand& command);

}  // namespace gpurun::client::cuda_tools
