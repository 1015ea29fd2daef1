# The call path of the worker: handles, issue queues, decoder, executor, outbox.
add_library(gpurun_server_callpath STATIC handles.cc issue_queue.cc decoder.cc outbox.cc executor.cc
            device_barrier.cc hot_calls.cc parking.cc worker.cc)
target_link_libraries(gpurun_server_callpath PUBLIC gpurun_protocol gpurun_transport gpurun_base
                      Threads::Threads PRIVATE gpurun_options)
