# The call path of the worker: handles, issue queues, decoder, executor, outbox.
add_library(gpurun_server_callpath STATIC handles.cc issue_queue.cc decoder.cc outbox.cc executor.cc executor_reply.cc
            bulk_in.cc bulk_lanes.cc bulk_out.cc completions.cc copy_calls.cc
            event_book.cc output_capture.cc staging.cc stream_bound.cc
            thread_context.cc whole_payload.cc
            device_barrier.cc hot_calls.cc parking.cc worker.cc)
target_link_libraries(gpurun_server_callpath PUBLIC gpurun_protocol gpurun_transport gpurun_base
                      Threads::Threads PRIVATE gpurun_options)
