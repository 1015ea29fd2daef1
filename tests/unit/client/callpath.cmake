gpurun_test(client_callpath_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/log/command_log_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/log/handles_test.cc" "${CMAKE_CURRENT_LIST_DIR}/log/lane_test.cc"
            LIBRARIES gpurun_client_callpath)
