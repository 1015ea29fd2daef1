# gpurund: leases, the handshake, and the start of workers.
add_library(gpurun_server_daemon STATIC
  daemon.cc daemon_link.cc lease_book.cc lease_queue.cc spawn.cc
  spawn_hand_over.cc worker_uids.cc)
target_link_libraries(gpurun_server_daemon
  PUBLIC gpurun_base gpurun_protocol_control gpurun_transport spdlog::spdlog
  PRIVATE gpurun_options Threads::Threads)
add_executable(gpurund main.cc config.cc daemon_notify.cc driver_path.cc)
target_link_libraries(gpurund PRIVATE gpurun_options gpurun_server_daemon gpurun_driver_abi CLI11::CLI11)
add_executable(gpurun-worker worker_main.cc worker_user.cc)
target_link_libraries(gpurun-worker PRIVATE
  gpurun_options gpurun_server_daemon gpurun_server_dispatch gpurun_server_callpath
  gpurun_server_driver CLI11::CLI11 ${CMAKE_DL_LIBS})
