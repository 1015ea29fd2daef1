gpurun_test(server_callpath_test unit
            SOURCES "${CMAKE_CURRENT_LIST_DIR}/handles_test.cc"
            LIBRARIES gpurun_server_callpath)
