# One process attached to one worker.
add_library(gpurun_client_session STATIC
  bulk/bulk.cc bulk/bulk_connections.cc bulk/bulk_downloads.cc bulk/bulk_opener.cc bulk/bulk_receiver.cc
  bulk/bulk_sender.cc bulk/bulk_state.cc bulk/lent_memory.cc bulk/bulk_uploads.cc bulk/bulk_window.cc
  bulk/completion_order.cc bulk/connection_count.cc bulk/connection_use.cc bulk/host_box.cc
  bulk/incoming_transfers.cc bulk/outgoing_transfers.cc bulk/source_reads.cc
  early_answers/copy_answers.cc early_answers/deferred_errors.cc early_answers/early_answers.cc
  early_answers/early_wait_limiter.cc early_answers/event_completions.cc early_answers/stream_progress.cc
  host_memory/access_check.cc host_memory/arena_file.cc host_memory/host_mirror.cc host_memory/write_watch.cc
  process/opening_descriptor.cc process/token_descriptor.cc
  session/call_path.cc session/copies.cc session/host_mirror_polls.cc session/host_mirror_traffic.cc session/device_output.cc
  session/fences.cc session/graph_host.cc session/lane_replies.cc session/log_receiver.cc
  session/log_room.cc session/log_sender.cc session/worker_statistics.cc session/reply_handler.cc session/session.cc
  session/session_options.cc session/session_shutdown.cc session/wait_answers.cc
  stats/recorder.cc stats/stats.cc stats/stats_report.cc stats/trace.cc)
target_link_libraries(gpurun_client_session
  PUBLIC gpurun_protocol_packing gpurun_client_worker_exit_page gpurun_client_thread gpurun_client_callpath gpurun_transport gpurun_driver_abi PRIVATE gpurun_options)
