// KernelLog: each kernel that the device has run: into the file that GPURUN_EMULATED's `log` names,
// and to who watches by way of driver_abi/emulated_view.h.
//
// A kernel belongs to the number that its launching thread had set when it made the call, so that a
// worker's log, a client's and this one can be laid side by side. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "driver_abi/emulated_view.h"

namespace gpurun::emulated::kernel_log {

// Opens the file of `log`, for appending; once, at cuInit. A line on the log when it cannot.
void open_file();

// What the calling thread enqueues from now on belongs to `number`; 0, as at first: to none.
void set_number(std::uint64_t number) noexcept;
std::uint64_t number() noexcept;
// What the calling thread runs from now on was enqueued under `number`, in the stream of that id.
void set_running_number(std::uint64_t number) noexcept;
void set_running_stream(std::uint64_t stream) noexcept;

// From now on each kernel's end is told, after its line is written; nullptr: to nobody.
void watch(driver_abi::KernelRunTold told, void* user) noexcept;

// Whether anybody wants to know.
bool wanted() noexcept;
std::uint64_t now() noexcept;  // Steady clock, nanoseconds.
// A kernel of the work that this thread runs has ended. number, stream and end_ns are filled in.
void ended(driver_abi::KernelRun run) noexcept;

}  // namespace gpurun::emulated::kernel_log
