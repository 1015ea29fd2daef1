// IPC files: the files behind handles of cuIpc... For a process that passes them on itself, because
// other processes may not open them through /proc (driver_abi/emulated_view.h).
#pragma once

namespace gpurun::emulated {

// The descriptor of the file behind a 64-byte handle that this process has made. -1: no such file.
// The caller must not close it.
int ipc_file(const void* bytes);
// Stores the file behind a 64-byte handle of another process. `file` is duplicated.
void take_ipc_file(const void* bytes, int file);

}  // namespace gpurun::emulated
