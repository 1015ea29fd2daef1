// Open points that this program cannot settle, each with its reason, so that they are not taken as
// settled.
#include "questions/questions.h"

namespace gpurun::probe {

void ask_beyond_one_process(const std::string&, Answer* answer) {
  answer->fact("runtime_13_1_to_13_4_and_table_F8CF",
               Json::text("unanswerable here: it needs those runtimes; start a program built with "
                          "each and watch cuGetExportTable"));
  answer->fact("nccl_in_several_processes",
               Json::text("unanswerable here: it needs NCCL and more than one process"));
  answer->fact("library_view_of_the_compute_capability",
               Json::text("unanswerable here: it needs cuBLAS and cuDNN"));
  answer->unanswerable("needs libraries or several machines; the facts name what to run");
}

}  // namespace gpurun::probe
