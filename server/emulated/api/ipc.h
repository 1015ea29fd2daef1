// The files behind handles of cuIpc..., for a process that hands them over itself because others
// may not open them through /proc (driver_abi/emulated_view.h).
#pragma once

namespace gpurun::emulated {

// The descriptor of what the 64 bytes name, which this process has made; -1: nothing. It stays
// ours.
int ipc_file(const void* bytes);
// The file of another process that the 64 bytes name something in; copied.
void take_ipc_file(const void* bytes, int file);

}  // namespace gpurun::emulated
