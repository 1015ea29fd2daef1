# One process attached to one worker.
add_library(gpurun_client_session STATIC
  bulk_connections.cc bulk_opener.cc bulk_receive.cc bulk_send.cc connection_count.cc copies.cc death.cc deferred_errors.cc device_output.cc device_pace.cc
  event_completions.cc fences.cc graph_host.cc host_box.cc observation.cc opening_descriptor.cc receiver.cc recorder.cc sender.cc session.cc
  session_options.cc stats.cc stats_report.cc stream_progress.cc trace.cc)
target_link_libraries(gpurun_client_session
  PUBLIC gpurun_protocol_packing gpurun_client_death_board gpurun_client_thread gpurun_client_callpath gpurun_transport gpurun_driver_abi PRIVATE gpurun_options)
