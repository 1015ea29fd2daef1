# Attaching to a server, and gpurun's control link.
add_library(gpurun_client_death_board STATIC death_board.cc memory_board.cc)
target_link_libraries(gpurun_client_death_board
  PUBLIC gpurun_base gpurun_protocol_control PRIVATE gpurun_options)
add_library(gpurun_client_attach STATIC attach.cc attach_connection.cc control_link.cc known_servers.cc late_attach.cc link_security.cc session_connections.cc session_data.cc transports.cc)
target_link_libraries(gpurun_client_attach
  PUBLIC gpurun_client_death_board gpurun_client_thread gpurun_base gpurun_driver_abi gpurun_protocol_control
         gpurun_transport gpurun_transport_tls
  PRIVATE gpurun_options)

gpurun_compile_alone(attach.cc memory_board.cc session_connections.cc)
