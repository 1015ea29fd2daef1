// KernelLog: reports each kernel that the device has run, to the file that GPURUN_EMULATED's `log`
// names, and to the watcher of driver_abi/emulated_view.h.
//
// A kernel belongs to the number that its launching thread had set when it made the call. So this
// log can be joined with the logs of a worker and a client. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "driver_abi/emulated_view.h"

namespace gpurun::emulated::kernel_log {

// Opens the file of `log` for appending. Called once, at cuInit. Logs a warning when it cannot.
void open_file();

// Assigns what the calling thread enqueues from now on to `number`. 0, the initial value: no
// number.
void set_number(std::uint64_t number) noexcept;
std::uint64_t number() noexcept;
// From now on the calling thread runs work that was enqueued under `number`, in the stream with the
// id `stream`.
void set_running_number(std::uint64_t number) noexcept;
void set_running_stream(std::uint64_t stream) noexcept;

// Reports each kernel's end to `told` from now on, after its line is written. nullptr: no watcher.
void watch(driver_abi::KernelRunTold told, void* user) noexcept;

// Whether a file or a watcher wants kernels.
bool wanted() noexcept;
std::uint64_t now() noexcept;  // Steady clock, nanoseconds.
// Reports the end of a kernel in the work that this thread runs. Fills in number, stream and
// end_ns.
void ended(driver_abi::KernelRun run) noexcept;

}  // namespace gpurun::emulated::kernel_log
