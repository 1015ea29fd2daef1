gpurun_test(client_callpath_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/command_log_test.cc"
                    "${CMAKE_CURRENT_LIST_DIR}/handles_test.cc" "${CMAKE_CURRENT_LIST_DIR}/lane_test.cc"
            LIBRARIES gpurun_client_callpath)
