gpurun_test(server_callpath_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/decoder_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/outbox_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/executor_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/early_waits_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/free_order_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/handles_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/issue_queue_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk_lanes_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/bulk_out_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/carried_copies_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/gathered_copies_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/recorder_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/staging_test.cc"
            LIBRARIES gpurun_server_callpath gpurun_transport_testing)
gpurun_test(image_folder_test unit
            SOURCES image_folder_test.cc ${CMAKE_SOURCE_DIR}/server/worker/sandbox/worker_user.cc
            LIBRARIES gpurun_server_images)
gpurun_test(hot_calls_test unit SOURCES "${CMAKE_CURRENT_LIST_DIR}/hot_calls_test.cc"
            LIBRARIES gpurun_server_handlers gpurun_server_callpath gpurun_transport_testing)
