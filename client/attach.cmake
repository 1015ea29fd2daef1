# Attaching to a server, and gpurun's control link.
add_library(gpurun_client_attach STATIC attach.cc control_link.cc session_data.cc)
target_link_libraries(gpurun_client_attach
  PUBLIC gpurun_client_thread gpurun_base gpurun_driver_abi gpurun_protocol_control gpurun_transport
  PRIVATE gpurun_options)
