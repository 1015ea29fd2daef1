// spdlog, compiled once: the parts of its library that daemon, worker and their tests use.
//
// Header-only spdlog would take ten seconds in each file that logs. spdlog's own sources do the
// same as this file, and Debian's development package lacks them.
#include <spdlog/common-inl.h>
#include <spdlog/details/backtracer-inl.h>
#include <spdlog/details/log_msg-inl.h>
#include <spdlog/details/log_msg_buffer-inl.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/details/os-inl.h>
#include <spdlog/details/periodic_worker-inl.h>
#include <spdlog/details/registry-inl.h>
#include <spdlog/logger-inl.h>
#include <spdlog/pattern_formatter-inl.h>
#include <spdlog/sinks/ansicolor_sink-inl.h>
#include <spdlog/sinks/base_sink-inl.h>
#include <spdlog/sinks/sink-inl.h>
#include <spdlog/sinks/stdout_color_sinks-inl.h>
#include <spdlog/spdlog-inl.h>

#include <memory>
#include <mutex>
#include <string>

namespace spdlog {

template class sinks::base_sink<std::mutex>;
template class sinks::base_sink<details::null_mutex>;
template class sinks::ansicolor_sink<details::console_mutex>;
template class sinks::ansicolor_stderr_sink<details::console_mutex>;
template class sinks::ansicolor_stdout_sink<details::console_mutex>;
template logger::logger(std::string name, sinks_init_list::iterator begin,
                        sinks_init_list::iterator end);
template std::shared_ptr<logger> stderr_color_mt<synchronous_factory>(const std::string& name,
                                                                      color_mode mode);

}  // namespace spdlog
