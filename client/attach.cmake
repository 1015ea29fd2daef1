# Attaching to a server, and gpurun's control link.
add_library(gpurun_client_attach STATIC session_data.cc)
target_link_libraries(gpurun_client_attach
  PUBLIC gpurun_base gpurun_protocol_control gpurun_transport PRIVATE gpurun_options)
