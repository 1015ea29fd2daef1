# Attaching to a server, and gpurun's control link.
add_library(gpurun_client_worker_exit_page STATIC session/worker_exit_page.cc process/shared_memory_pressure.cc)
target_link_libraries(gpurun_client_worker_exit_page
  PUBLIC gpurun_base gpurun_protocol_control PRIVATE gpurun_options)
add_library(gpurun_client_attach STATIC attach/attach.cc attach/attach_connection.cc attach/broker.cc control/control_link.cc control/known_servers.cc attach/extra_bulk_attach.cc attach/fabric_attach.cc attach/late_attach.cc control/link_security.cc attach/session_connections.cc attach/session_data.cc attach/transports.cc)
target_link_libraries(gpurun_client_attach
  PUBLIC gpurun_client_worker_exit_page gpurun_client_thread gpurun_base gpurun_driver_abi gpurun_protocol_control
         gpurun_transport gpurun_transport_rdma gpurun_transport_tls
  PRIVATE gpurun_options)

gpurun_compile_alone(attach/attach.cc process/shared_memory_pressure.cc attach/session_connections.cc)
