# One process attached to one worker.
add_library(gpurun_client_session STATIC
  bulk/bulk_connections.cc bulk/bulk_opener.cc bulk/bulk_receive.cc bulk/bulk_send.cc bulk/connection_count.cc session/call_path.cc session/copies.cc session/early_answers.cc session/lane_replies.cc session/log_receiver.cc session/log_room.cc session/session_shutdown.cc progress/deferred_errors.cc session/device_output.cc progress/early_wait_limiter.cc
  progress/event_completions.cc session/fences.cc session/graph_host.cc bulk/host_box.cc session/observation.cc process/opening_descriptor.cc session/reply_handler.cc stats/recorder.cc session/log_sender.cc session/session.cc
  session/session_options.cc stats/stats.cc stats/stats_report.cc progress/stream_progress.cc stats/trace.cc)
target_link_libraries(gpurun_client_session
  PUBLIC gpurun_protocol_packing gpurun_client_worker_exit_page gpurun_client_thread gpurun_client_callpath gpurun_transport gpurun_driver_abi PRIVATE gpurun_options)
